// How much memory of a device libtorch takes while a thread runs something, and how much memory a GPU has.
//
// Each allocator of libtorch reports what it gives and takes back to the thread's profiler, if there is one. The one here only counts.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "told.h"

namespace {

using c10::Device;
using c10::DeviceType;

class Counter : public c10::MemoryReportingInfoBase {
 public:
  explicit Counter(DeviceType type) : type_(type) {}

  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, Device device) override {
    if (device.type() != type_) {
      return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    now_ += bytes;
    most_ = std::max(most_, now_);
  }

  bool memoryProfilingEnabled() const override {
    return true;
  }

  int64_t most() {
    std::lock_guard<std::mutex> lock(mutex_);
    return most_;
  }

 private:
  DeviceType type_;
  // A model may run parts of itself on other threads, which report here, too.
  std::mutex mutex_;
  int64_t now_ = 0;
  int64_t most_ = 0;
};

struct Counting {
  std::shared_ptr<Counter> counter;
  c10::DebugInfoGuard guard;

  explicit Counting(std::shared_ptr<Counter> of)
      : counter(of), guard(c10::DebugInfoKind::PROFILER_STATE, of) {}
};

} // namespace

extern "C" {

// From here on what the calling thread takes of the memory of the CPU, or of GPUs, is counted, until the same thread ends it.
char* spillgate_count_memory(bool gpu, Counting** out) {
  return told([&] {
    *out = new Counting(std::make_shared<Counter>(gpu ? DeviceType::CUDA : DeviceType::CPU));
  });
}

// The most bytes that were taken at the same time.
uint64_t spillgate_counted_memory(const Counting* counting) {
  return static_cast<uint64_t>(counting->counter->most());
}

void spillgate_count_memory_end(Counting* counting) {
  delete counting;
}

// Bytes of memory that a GPU has.
char* spillgate_gpu_memory(int index, uint64_t* bytes) {
  return told([&] {
    auto* allocator = c10::getDeviceAllocator(DeviceType::CUDA);
    *bytes = allocator->getMemoryInfo(static_cast<c10::DeviceIndex>(index)).second;
  });
}

} // extern "C"
