#include "backend/cuda/device/cupti_trace.h"

#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

constexpr const char* kLibraryVariable = "DDP_CUPTI_LIBRARY";
// Size of the buffers that CUPTI fills with records. Where it holds kMostBuffers of them, it drops further records.
constexpr std::size_t kBufferBytes = std::size_t{1} << 20U;
constexpr int kMostBuffers = 64;
constexpr std::size_t kLongestName = 160;
constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMSET};
// Records of a newer CUPTI of this major version begin like these.
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
using FillRecord = CUpti_ActivityMemset4;

// The functions of the library. It is never closed, since its thread cannot be ended.
class Cupti {
 public:
  Cupti() {
    const char* named = std::getenv(kLibraryVariable);
    const std::string path =
        named != nullptr && *named != '\0' ? named : "libcupti.so." + std::to_string(CUDA_VERSION / 1000);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = dlerror();
      throw Error(ExitCode::preflight,
                  fmt::format("CUPTI cannot be loaded ({}); install it with the CUDA toolkit, or name it in {}",
                              reason == nullptr ? path : reason, kLibraryVariable));
    }
    find(library, get_version, "cuptiGetVersion");
    find(library, result_string, "cuptiGetResultString");
    find(library, timestamp, "cuptiGetTimestamp");
    find(library, enable, "cuptiActivityEnable");
    find(library, disable, "cuptiActivityDisable");
    find(library, flush_all, "cuptiActivityFlushAll");
    find(library, register_callbacks, "cuptiActivityRegisterCallbacks");
    find(library, next_record, "cuptiActivityGetNextRecord");
  }

  void check_result(CUptiResult result, const char* what) const {
    if (result == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    static_cast<void>(result_string(result, &text));
    throw Error(ExitCode::preflight,
                fmt::format("{}: {} ({})", what, text == nullptr ? "unknown error" : text, static_cast<int>(result)));
  }

  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  decltype(&cuptiGetTimestamp) timestamp = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;

 private:
  template <class Function>
  static void find(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    check(function != nullptr, ExitCode::preflight, "this CUPTI has no {}; take that of the CUDA of this build", name);
  }
};

// A moment on the clock of CUPTI, in nanoseconds, and on that of the program.
struct ClockPair {
  std::uint64_t cupti = 0;
  double host = 0;
};

ClockPair read_clocks(const Cupti& cupti) {
  constexpr int kTries = 16;
  ClockPair best;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries; ++i) {
    std::uint64_t time = 0;
    const double before = now();
    cupti.check_result(cupti.timestamp(&time), "cuptiGetTimestamp");
    const double after = now();
    if (after - before >= least) continue;
    least = after - before;
    best = {time, (before + after) / 2};
  }
  return best;
}

class CuptiTrace final : public GpuTrace {
 public:
  explicit CuptiTrace(std::size_t most) : most_(most) {
    std::uint32_t version = 0;
    cupti_.check_result(cupti_.get_version(&version), "cuptiGetVersion");
    check(version >= CUPTI_API_VERSION, ExitCode::preflight,
          "CUPTI {} is older than {}, of this build; take that of the CUDA of this build", version, CUPTI_API_VERSION);
    spans_.reserve(most);
    begin_ = read_clocks(cupti_);
    set_current(this);
    try {
      cupti_.check_result(cupti_.register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
      for (const CUpti_ActivityKind kind : kKinds) cupti_.check_result(cupti_.enable(kind), "cuptiActivityEnable");
    } catch (...) {
      stop();
      throw;
    }
  }
  CuptiTrace(const CuptiTrace&) = delete;
  CuptiTrace& operator=(const CuptiTrace&) = delete;
  ~CuptiTrace() override { stop(); }

  std::vector<GpuSpan> finish() override;

 private:
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t stream = 0;
    std::uint32_t name = 0;  // in names_
  };

  // CUPTI's callbacks have no argument of ours; they are called by its own thread too, even after the end.
  static void set_current(CuptiTrace* trace) {
    const std::scoped_lock lock(current_mutex);
    check(trace == nullptr || current == nullptr, ExitCode::preflight, "another trace of the GPU is recorded");
    current = trace;
  }
  static void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
    const std::scoped_lock lock(current_mutex);
    *most_records = 0;  // as many as fit
    *buffer = nullptr;
    *bytes = 0;
    if (current == nullptr || buffers >= kMostBuffers) return;
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, kBufferBytes));
    if (*buffer == nullptr) return;
    *bytes = kBufferBytes;
    ++buffers;
  }
  static void CUPTIAPI take_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                                   std::size_t /*bytes*/, std::size_t valid) {
    const std::scoped_lock lock(current_mutex);
    if (current != nullptr && buffer != nullptr) current->read(buffer, valid);
    if (buffer != nullptr) --buffers;
    std::free(buffer);
  }

  void stop() noexcept {
    for (const CUpti_ActivityKind kind : kKinds) static_cast<void>(cupti_.disable(kind));
    const std::scoped_lock lock(current_mutex);
    if (current == this) current = nullptr;
  }

  void read(std::uint8_t* buffer, std::size_t valid);
  void add(std::uint64_t begin, std::uint64_t end, std::uint32_t stream, const char* name);
  std::uint32_t number_of(const char* name);

  static inline std::mutex current_mutex;  // guards all that follows, and what a trace has collected
  static inline CuptiTrace* current = nullptr;
  static inline int buffers = 0;  // that CUPTI holds

  Cupti cupti_;
  std::size_t most_;
  ClockPair begin_;
  std::vector<Span> spans_;  // a ring
  std::size_t seen_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // of mangled names
};

void CuptiTrace::read(std::uint8_t* buffer, std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (valid > 0 && cupti_.next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
      const auto* kernel = reinterpret_cast<const KernelRecord*>(record);
      add(kernel->start, kernel->end, kernel->streamId, kernel->name);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<const CopyRecord*>(record);
      add(copy->start, copy->end, copy->streamId,
          copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy to the GPU"
          : copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
                                                              : "copy");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* fill = reinterpret_cast<const FillRecord*>(record);
      add(fill->start, fill->end, fill->streamId, "fill");
    }
  }
}

void CuptiTrace::add(std::uint64_t begin, std::uint64_t end, std::uint32_t stream, const char* name) {
  if (begin == 0 || end < begin || most_ == 0) return;  // 0: CUPTI could not measure it
  const Span span{begin, end, stream, number_of(name == nullptr ? "" : name)};
  if (spans_.size() < most_) {
    spans_.push_back(span);
  } else {
    spans_[seen_ % most_] = span;
  }
  ++seen_;
}

std::uint32_t CuptiTrace::number_of(const char* name) {
  const auto [found, added] = numbers_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
  if (added) names_.push_back(kernel_name(name));
  return found->second;
}

std::vector<GpuSpan> CuptiTrace::finish() {
  static_cast<void>(cupti_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  const ClockPair end = read_clocks(cupti_);
  stop();
  // The two clocks may run at slightly different rates.
  constexpr double kNanosecond = 1e-9;
  const double elapsed = static_cast<double>(end.cupti - begin_.cupti) * kNanosecond;
  const double rate = elapsed > 0 ? (end.host - begin_.host) / elapsed : 1;
  const auto on_host = [&](std::uint64_t time) {
    const auto since = static_cast<double>(static_cast<std::int64_t>(time - begin_.cupti));
    return begin_.host + rate * since * kNanosecond;
  };
  std::vector<GpuSpan> result;
  result.reserve(spans_.size());
  for (const Span& span : spans_) {
    result.push_back({names_[span.name], span.stream, on_host(span.begin), on_host(span.end)});
  }
  std::sort(result.begin(), result.end(), [](const GpuSpan& a, const GpuSpan& b) { return a.begin < b.begin; });
  return result;
}

}  // namespace

std::unique_ptr<GpuTrace> start_cupti_trace(std::size_t most) { return std::make_unique<CuptiTrace>(most); }

std::string kernel_name(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                          &std::free);
  std::string name = status == 0 && plain ? plain.get() : mangled;
  // The arguments begin at the first parenthesis outside of template arguments; what is before the last space outside of
  // them is the return type.
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (std::string_view(name).substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
      continue;
    }
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (depth > 0) continue;
    if (name[i] == ' ') begin = i + 1;
    if (name[i] != '(') continue;
    name.resize(i);
    break;
  }
  if (begin > 0 && begin < name.size() && status == 0) name.erase(0, begin);
  if (name.size() > kLongestName) name.replace(kLongestName - 3, std::string::npos, "...");
  return name;
}

}  // namespace ddp::cuda
