// What libtorch has for GPUs and tch does not bind: streams, and graphs of recorded executions.
//
// It compiles without CUDA's headers, and the program runs without CUDA. Streams go through libtorch's interface for all
// kinds of device. at::cuda::CUDAGraph and cudaGraphLaunch are looked up in the libraries that the process has loaded. Functions
// that can fail return a text to be freed, or null.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "told.h"

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;
using c10::impl::VirtualGuardImpl;
using Pool = std::pair<unsigned long long, unsigned long long>;

// cudaStreamCaptureModeThreadLocal: other threads may do what a recording thread may not.
constexpr int THREAD_LOCAL = 1;

// Room for an at::cuda::CUDAGraph, which has less than 300 bytes.
constexpr std::size_t GRAPH_BYTES = 1024;

// Members of at::cuda::CUDAGraph, as free functions whose first argument is `this`.
struct Symbols {
  void (*construct)(void*, bool);
  void (*destroy)(void*);
  void (*capture_begin)(void*, Pool, int);
  void (*capture_end)(void*);
  void* (*executable)(void*);
  Pool (*new_pool)();
  int (*launch)(void*, void*);
  const char* (*error_text)(int);
  int (*last_error)();

  bool complete() const {
    return construct && destroy && capture_begin && capture_end && executable &&
        new_pool && launch && error_text && last_error;
  }
};

template <typename F>
void look_up(F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}

const Symbols& symbols() {
  static const Symbols found = [] {
    Symbols s{};
    look_up(s.construct, "_ZN2at4cuda9CUDAGraphC1Eb");
    look_up(s.destroy, "_ZN2at4cuda9CUDAGraphD1Ev");
    look_up(s.capture_begin, "_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode");
    look_up(s.capture_end, "_ZN2at4cuda9CUDAGraph11capture_endEv");
    look_up(s.executable, "_ZN2at4cuda9CUDAGraph19raw_cuda_graph_execEv");
    look_up(s.new_pool, "_ZN2at4cuda17graph_pool_handleEv");
    look_up(s.launch, "cudaGraphLaunch");
    look_up(s.error_text, "cudaGetErrorString");
    look_up(s.last_error, "cudaGetLastError");
    return s;
  }();
  return found;
}

VirtualGuardImpl guard() {
  return VirtualGuardImpl(DeviceType::CUDA);
}

Device device_of(int index) {
  return Device(DeviceType::CUDA, static_cast<DeviceIndex>(index));
}

// Where executions are recorded: a stream that does nothing else, and memory that all recorded executions use in turn.
struct Recorder {
  int index;
  Stream stream;
  Pool pool;
};

// A recorded execution.
struct Graph {
  alignas(std::max_align_t) unsigned char bytes[GRAPH_BYTES];
  int index;
  // The stream of the thread that records, while it does.
  Stream before;
};

} // namespace

extern "C" {

// Gives the calling thread a stream of its own on a GPU, and makes both current.
char* spillgate_cuda_enter(int index, bool urgent) {
  return told([&] {
    auto gpus = guard();
    gpus.setDevice(device_of(index));
    gpus.exchangeStream(gpus.getStreamFromGlobalPool(device_of(index), urgent));
  });
}

// Makes a GPU current, with the stream that the calling thread has there.
char* spillgate_cuda_use(int index) {
  return told([&] { guard().setDevice(device_of(index)); });
}

// Waits until the calling thread's stream on a GPU has done everything.
char* spillgate_cuda_synchronize(int index) {
  return told([&] {
    auto gpus = guard();
    gpus.synchronizeStream(gpus.getStream(device_of(index)));
  });
}

// Whether executions can be recorded.
bool spillgate_cuda_records() {
  return symbols().complete();
}

char* spillgate_cuda_recorder(int index, Recorder** out) {
  return told([&] {
    auto stream = guard().getStreamFromGlobalPool(device_of(index), false);
    *out = new Recorder{index, stream, symbols().new_pool()};
  });
}

void spillgate_cuda_recorder_free(Recorder* recorder) {
  delete recorder;
}

// From here on the calling thread's work on the GPU is recorded and not done, until the end or the failure is said.
char* spillgate_cuda_record(const Recorder* recorder, Graph** out) {
  auto* graph = new Graph{{}, recorder->index, recorder->stream};
  bool constructed = false;
  char* error = told([&] {
    auto gpus = guard();
    symbols().construct(graph->bytes, false);
    constructed = true;
    graph->before = gpus.exchangeStream(recorder->stream);
    try {
      symbols().capture_begin(graph->bytes, recorder->pool, THREAD_LOCAL);
    } catch (...) {
      gpus.exchangeStream(graph->before);
      throw;
    }
  });
  if (error == nullptr) {
    *out = graph;
    return nullptr;
  }
  if (constructed) {
    symbols().destroy(graph->bytes);
  }
  delete graph;
  return error;
}

// Ends a record, whether what was recorded went well or not. After an error the recorder must not be used again.
char* spillgate_cuda_recorded(Graph* graph) {
  char* error = told([&] { symbols().capture_end(graph->bytes); });
  char* back = told([&] { guard().exchangeStream(graph->before); });
  if (error == nullptr) {
    return back;
  }
  free(back);
  // Else the next kernel's error would be this one.
  symbols().last_error();
  return error;
}

// Does what was recorded, on the calling thread's stream; returns before it is done.
char* spillgate_cuda_launch(Graph* graph) {
  return told([&] {
    auto gpus = guard();
    void* executable = symbols().executable(graph->bytes);
    void* stream = gpus.getStreamNativeHandle(gpus.getStream(device_of(graph->index)));
    int error = symbols().launch(executable, stream);
    TORCH_CHECK(error == 0, symbols().error_text(error));
  });
}

void spillgate_cuda_graph_free(Graph* graph) {
  free(told([&] { symbols().destroy(graph->bytes); }));
  delete graph;
}

} // extern "C"
