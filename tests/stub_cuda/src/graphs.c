/* libcudart, graphs: what was captured is kept, and launched again at each replay. */
#include "runtime.h"

static unsigned long long captures;

void add_node(struct CUgraph_st *graph, const struct node *node) {
  if (graph->count == graph->room) {
    graph->room = graph->room ? 2 * graph->room : 64;
    graph->nodes = realloc(graph->nodes, graph->room * sizeof *graph->nodes);
  }
  graph->nodes[graph->count++] = *node;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
    API(cudaStreamBeginCapture,
        {
          struct CUstream_st *at = stream_of(stream);
          (void)mode;
          at->capturing = calloc(1, sizeof *at->capturing);
          at->capturing->id = ++captures;
        })

        EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
            API(cudaStreamEndCapture,
                {
                  *graph = stream_of(stream)->capturing;
                  if (*graph)
                    end_capture_everywhere(*graph);
                  else
                    err = cudaErrorInvalidValue;
                })

                static enum cudaStreamCaptureStatus
    status_of(const struct CUstream_st *stream) {
  return stream->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                         enum cudaStreamCaptureStatus *status) {
  *status = status_of(stream_of(stream));
  return cudaSuccess;
}

#if CUDART_VERSION < 13000 /* there, the edges have another function */
#define WITH_EDGES
#else
#define WITH_EDGES const cudaGraphEdgeData **edges,
#endif

EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                            enum cudaStreamCaptureStatus *status,
                                            unsigned long long *id, cudaGraph_t *graph,
                                            const cudaGraphNode_t **nodes,
                                            WITH_EDGES size_t *count) {
  struct CUstream_st *at = stream_of(stream);
  *status = status_of(at);
  if (id)
    *id = at->capturing ? at->capturing->id : 0;
  if (graph)
    *graph = at->capturing;
  if (nodes)
    *nodes = NULL;
#if CUDART_VERSION >= 13000
  if (edges)
    *edges = NULL;
#endif
  if (count)
    *count = 0;
  return cudaSuccess;
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  static _Thread_local enum cudaStreamCaptureMode own;
  enum cudaStreamCaptureMode before = own;
  own = *mode;
  *mode = before;
  return cudaSuccess;
}

/* The mirror's work belongs to the kernels beside it and is no node of its own. */
EXPORT int stub_at_replay(void *stream, void (*function)(void *), void *data) {
  struct CUgraph_st *graph;
  LOCKED {
    graph = stream_of(stream)->capturing;
    if (graph)
      add_node(graph, &(struct node){.host = function, .data = data, .unseen = 1});
  }
  return graph != NULL;
}

/* torch asks for the number of nodes, to warn of an empty graph. */
EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  if (nodes)
    return cudaSuccess;
  *count = 0;
  for (size_t i = 0; graph && i < graph->count; i++)
    *count += !graph->nodes[i].unseen;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *instance, cudaGraph_t graph,
                                                 unsigned long long flags)
    API(cudaGraphInstantiateWithFlags,
        {
          (void)flags;
          struct CUgraph_st *made = malloc(sizeof *made);
          *made = *graph;
          made->nodes = malloc(graph->count * sizeof *graph->nodes);
          memcpy(made->nodes, graph->nodes, graph->count * sizeof *graph->nodes);
          *instance = (cudaGraphExec_t)made;
        })

        static void replay(struct CUstream_st *stream, uint32_t of_call,
                           const struct node *node) {
  if (node->host)
    node->host(node->data);
  else if (node->name)
    launch_node(stream, of_call, node);
  else
    transfer(stream, of_call, node);
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream)
    API(cudaGraphLaunch,
        {
          const struct CUgraph_st *graph = (const struct CUgraph_st *)instance;
          for (size_t i = 0; i < graph->count; i++)
            replay(stream_of(stream), own.id, &graph->nodes[i]);
        })

        static cudaError_t forget(struct CUgraph_st *graph) {
  if (graph)
    free(graph->nodes);
  free(graph);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return forget(graph); }
EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  return forget((struct CUgraph_st *)instance);
}
