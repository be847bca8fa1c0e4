"""Make the environment of the Makefile, or say in a sentence why that cannot be.

    python3 tools/environment.py FOLDER

Whatever python3 a machine has runs it, so its syntax is that of Python 3.6.
"""

import shutil
import subprocess
import sys


LEAST = (3, 10)
OTHERS = [f"python3.{minor}" for minor in range(14, 9, -1)]


def main() -> None:
    why_not = too_old() or without_venv()
    if why_not:
        sys.exit(f"make: {why_not}")
    made = subprocess.call([sys.executable, "-m", "venv", sys.argv[1]])
    if made != 0:
        # Half of an environment would be taken for one by the next make.
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        sys.exit("make: python3 -m venv failed, for the reason above")


def too_old() -> str:
    if sys.version_info >= LEAST:
        return ""
    has = ".".join(map(str, sys.version_info[:2]))
    found = [name for name in OTHERS if shutil.which(name)]
    install = "" if found else "install one, then "
    return (
        f"python3 is Python {has} and 3.10 or newer is needed: {install}name it, as in "
        f"`make demo PYTHON={found[0] if found else 'python3.12'}`"
    )


def without_venv() -> str:
    try:
        import ensurepip  # noqa: F401, what Debian leaves out of its python3
        import venv  # noqa: F401
    except ImportError:
        return (
            "python3 has no venv: `apt-get install python3-venv` brings it on Debian and "
            "Ubuntu; `make demo PYTHON=...` takes another python3"
        )
    return ""


main()
