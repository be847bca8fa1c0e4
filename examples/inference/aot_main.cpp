// Runs a package of AOTInductor and prints what it gives: there is no Python here.
#include <ATen/ATen.h>
#include <iostream>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

int main(int, char **arguments)
{
    c10::InferenceMode mode;
    torch::inductor::AOTIModelPackageLoader package(arguments[1]);
    std::vector<at::Tensor> results = package.run({at::linspace(-1, 1, 8).reshape({2, 4})});
    std::cout.precision(8);
    for (int i = 0; i < results[0].numel(); ++i)
        std::cout << results[0].view(-1)[i].item<float>() << "\n";
}
