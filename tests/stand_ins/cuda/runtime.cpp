#include "stand_ins/cuda/runtime.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

namespace {

using Work = std::function<void()>;
using Places = std::vector<std::size_t>;

// A graph node and the earlier nodes that it depends on.
struct Node {
  std::string name;
  Work work;
  Places after;
};

// A capture, by all streams that take part; only one thread of a test captures at a time.
struct Capture {
  std::vector<Node> nodes;
  std::vector<cudaStream_t> streams;  // the first is the stream on which the capture began
  bool invalid = false;               // after a call that is not allowed during capture

  // Returns true if `later` depends on `earlier`, directly or not. Nodes depend on earlier places only.
  bool reaches(std::size_t later, std::size_t earlier) const {
    std::vector<bool> waited_for(later + 1, false);
    waited_for[later] = true;
    for (std::size_t place = later; place > earlier; --place) {
      if (!waited_for[place]) continue;
      for (const std::size_t before : nodes[place].after) waited_for[before] = true;
    }
    return earlier <= later && waited_for[earlier];
  }

  // A new random order that the dependencies allow, so that tests detect missing dependencies.
  Places random_order() const {
    static thread_local std::mt19937 engine{std::random_device{}()};
    std::vector<std::size_t> missing(nodes.size(), 0);
    std::vector<Places> followers(nodes.size());
    Places ready;
    for (std::size_t place = 0; place < nodes.size(); ++place) {
      missing[place] = nodes[place].after.size();
      for (const std::size_t before : nodes[place].after) followers[before].push_back(place);
      if (missing[place] == 0) ready.push_back(place);
    }
    Places order;
    while (!ready.empty()) {
      std::swap(ready[std::uniform_int_distribution<std::size_t>(0, ready.size() - 1)(engine)], ready.back());
      order.push_back(ready.back());
      ready.pop_back();
      for (const std::size_t next : followers[order.back()]) {
        if (--missing[next] == 0) ready.push_back(next);
      }
    }
    return order;
  }
};

// Invalidates the capture, as CUDA does for calls that are not allowed on a capturing stream.
cudaError_t refuse_in(Capture& capture) {
  capture.invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

std::atomic<cudaError_t> broken{cudaSuccess};
std::atomic<cudaError_t> reported_once{cudaSuccess};
std::atomic<unsigned long long> last_flags{0};

// The sizes of the blocks of cudaMalloc.
std::mutex blocks_mutex;
std::map<void*, std::size_t> blocks;

// The streams that this thread created: with ranks as threads, those of its device.
thread_local std::vector<cudaStream_t> streams_of_device;

// The host may poll a word while a copy writes it.
void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == sizeof(std::uint32_t)) {
    std::uint32_t word = 0;
    std::memcpy(&word, from, bytes);
    std::atomic_ref(*static_cast<std::uint32_t*>(to)).store(word);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

struct CUstream_st {
  CUstream_st() : thread([this] { run(); }) {}
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    thread.join();
  }

  void push(Work work) {
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(work));
    }
    changed.notify_all();
  }

  bool idle() {
    const std::lock_guard lock(mutex);
    return queue.empty() && !busy;
  }

  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return queue.empty() && !busy; });
  }

  // The capture, null if there is none, and this stream's last nodes in it.
  std::shared_ptr<Capture> capture;
  Places last;

 private:
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || !queue.empty(); });
      if (queue.empty()) return;
      Work work = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  bool busy = false;
  bool stop = false;
  std::thread thread;
};

struct CUevent_st {
  // Outlives the event while work on streams refers to it.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    unsigned long recorded = 0;
    unsigned long reached = 0;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
  // The capture in which the event was recorded, and its nodes there.
  std::weak_ptr<Capture> capture;
  bool captured = false;
  Places places;
};

struct CUgraph_st {
  std::shared_ptr<Capture> capture;
};
struct CUgraphExec_st {
  std::shared_ptr<Capture> capture;
};

namespace ddp::testing {
namespace {

std::size_t place_of(const Capture& capture, const std::string& name) {
  const auto node =
      std::find_if(capture.nodes.begin(), capture.nodes.end(), [&](const Node& n) { return n.name == name; });
  if (node == capture.nodes.end()) throw std::runtime_error("the recording has no work named " + name);
  return static_cast<std::size_t>(node - capture.nodes.begin());
}

}  // namespace

void enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work) {
  if (stream->capture == nullptr) {
    stream->push(std::move(work));
    return;
  }
  stream->capture->nodes.push_back({name, std::move(work), stream->last});
  stream->last = {stream->capture->nodes.size() - 1};
}

std::vector<std::string> work_names(cudaGraph_t graph) {
  std::vector<std::string> names;
  for (const Node& node : graph->capture->nodes) names.push_back(node.name);
  return names;
}

bool depends(cudaGraph_t graph, const std::string& later, const std::string& earlier) {
  return graph->capture->reaches(place_of(*graph->capture, later), place_of(*graph->capture, earlier));
}

void break_streams(cudaError_t error) { broken = error; }

std::size_t allocated_bytes() {
  const std::lock_guard lock(blocks_mutex);
  return std::accumulate(blocks.begin(), blocks.end(), std::size_t{0},
                         [](std::size_t sum, const auto& block) { return sum + block.second; });
}

void report_once(cudaError_t error) { reported_once = error; }

unsigned long long instantiation_flags() { return last_flags; }

}  // namespace ddp::testing

using ddp::testing::enqueue;

// CUDA's function names with our own parameter names.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*memory, 0xFF, bytes);
  const std::lock_guard lock(blocks_mutex);
  blocks[*memory] = bytes;
  return cudaSuccess;
}

// Synchronizes with the device first, as CUDA does.
cudaError_t cudaFree(void* memory) {
  for (CUstream_st* stream : streams_of_device) stream->wait();
  {
    const std::lock_guard lock(blocks_mutex);
    blocks.erase(memory);
  }
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  enqueue(stream, "copy", [=] { copy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  enqueue(stream, "set", [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
  *stream = std::make_unique<CUstream_st>().release();
  streams_of_device.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int /*priority*/) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::unique_ptr<CUstream_st> owned(stream);
  std::erase(streams_of_device, stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->capture != nullptr) return refuse_in(*stream->capture);
  if (broken != cudaSuccess) return broken;
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capture != nullptr) return refuse_in(*stream->capture);
  stream->wait();
  const cudaError_t error = reported_once.exchange(cudaSuccess);
  return error != cudaSuccess ? error : broken.load();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = std::make_unique<CUevent_st>().release();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::unique_ptr<CUevent_st> owned(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->capture = stream->capture;
  event->captured = stream->capture != nullptr;
  event->places = stream->last;
  if (stream->capture != nullptr) return cudaSuccess;
  unsigned long number = 0;
  {
    const std::lock_guard lock(event->state->mutex);
    number = ++event->state->recorded;
  }
  stream->push([number, state = event->state] {
    {
      const std::lock_guard lock(state->mutex);
      state->reached = std::max(state->reached, number);
    }
    state->changed.notify_all();
  });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured) return cudaErrorInvalidValue;
  if (broken != cudaSuccess) return broken;
  const std::lock_guard lock(event->state->mutex);
  return event->state->reached >= event->state->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured) return cudaErrorInvalidValue;
  {
    CUevent_st::State& state = *event->state;
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return state.reached >= state.recorded; });
  }
  const cudaError_t error = reported_once.exchange(cudaSuccess);
  return error != cudaSuccess ? error : broken.load();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (event->captured) {
    const std::shared_ptr<Capture> capture = event->capture.lock();
    if (capture == nullptr) return cudaErrorStreamCaptureIsolation;
    if (stream->capture == nullptr) {
      stream->capture = capture;
      stream->last.clear();
      capture->streams.push_back(stream);
    }
    if (stream->capture != capture) return cudaErrorStreamCaptureIsolation;
    stream->last.insert(stream->last.end(), event->places.begin(), event->places.end());
    return cudaSuccess;
  }
  if (stream->capture != nullptr) return cudaErrorStreamCaptureIsolation;
  unsigned long number = 0;
  {
    const std::lock_guard lock(event->state->mutex);
    number = event->state->recorded;
  }
  stream->push([number, state = event->state] {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->reached >= number; });
  });
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  stream->capture = std::make_shared<Capture>();
  stream->capture->streams = {stream};
  stream->last.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->streams.front() != stream) return cudaErrorStreamCaptureUnmatched;
  const Places ends = stream->last;
  bool joined = true;
  for (CUstream_st* other : capture->streams) {
    for (const std::size_t place : other->last) {
      joined &= std::any_of(ends.begin(), ends.end(), [&](std::size_t end) { return capture->reaches(end, place); });
    }
    other->capture = nullptr;
    other->last.clear();
  }
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = std::make_unique<CUgraph_st>(CUgraph_st{capture}).release();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  last_flags = flags;
  *exec = std::make_unique<CUgraphExec_st>(CUgraphExec_st{graph->capture}).release();
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const std::size_t place : exec->capture->random_order()) stream->push(exec->capture->nodes[place].work);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::unique_ptr<CUgraph_st> owned(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const std::unique_ptr<CUgraphExec_st> owned(exec);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaErrorStandIn"; }
const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error on purpose"; }

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
