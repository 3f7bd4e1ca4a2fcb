// A stand-in for CUPTI, compiled against its headers: it keeps records of launches that a test makes up, and returns them in
// buffers as CUPTI does. Its clock has another origin than the host's and is 0.1% faster.
//
//   stand_in_launch("_Z4convv", /*stream=*/7, /*nanoseconds=*/2000);    // found by dlsym()
//
//   STAND_IN_CUPTI_FAULT      old: an older version; busy: another profiler uses it
#include <cupti.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#define STAND_IN_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

bool fault_is(std::string_view fault) {
  const char* const value = std::getenv("STAND_IN_CUPTI_FAULT");
  return value != nullptr && fault == value;
}

CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
bool enabled = false;
std::uint8_t* records = nullptr;
std::size_t size = 0;
std::size_t used = 0;

std::uint64_t clock_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const auto host = static_cast<std::uint64_t>(time.tv_sec) * 1000000000U + static_cast<std::uint64_t>(time.tv_nsec);
  return 1700000000000000000U + host + host / 1000;
}

void hand_back() {
  if (records != nullptr) complete(nullptr, 0, records, size, used);
  records = nullptr;
  used = 0;
}

template <class Record>
void write(const Record& record) {
  if (records != nullptr && used + sizeof(Record) > size) hand_back();
  std::size_t most = 0;
  if (records == nullptr) request(&records, &size, &most);
  if (records == nullptr) return;  // dropped
  std::memcpy(records + used, &record, sizeof(Record));
  used += sizeof(Record);
}

template <class Record>
Record record_of(CUpti_ActivityKind kind, std::uint32_t stream, std::uint64_t nanoseconds) {
  Record record;
  std::memset(&record, 0, sizeof(record));
  record.kind = kind;
  record.start = clock_now();
  record.end = record.start + nanoseconds;
  record.streamId = stream;
  return record;
}

}  // namespace

STAND_IN_EXPORT void stand_in_launch(const char* name, std::uint32_t stream, std::uint64_t nanoseconds) {
  if (!enabled) return;
  auto kernel = record_of<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, stream, nanoseconds);
  kernel.name = name;
  write(kernel);
}
STAND_IN_EXPORT void stand_in_copy(std::uint32_t stream, std::uint64_t nanoseconds) {
  if (!enabled) return;
  auto copy = record_of<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, stream, nanoseconds);
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  write(copy);
  write(record_of<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, stream, nanoseconds));
}

STAND_IN_EXPORT CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = fault_is("old") ? 1 : CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
STAND_IN_EXPORT CUptiResult cuptiGetResultString(CUptiResult /*result*/, const char** str) {
  *str = "the stand-in refuses";
  return CUPTI_SUCCESS;
}
STAND_IN_EXPORT CUptiResult cuptiGetTimestamp(std::uint64_t* timestamp) {
  *timestamp = clock_now();
  return CUPTI_SUCCESS;
}
STAND_IN_EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                           CUpti_BuffersCallbackCompleteFunc completed) {
  request = requested;
  complete = completed;
  return CUPTI_SUCCESS;
}
STAND_IN_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind /*kind*/) {
  if (fault_is("busy")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  enabled = true;
  return CUPTI_SUCCESS;
}
STAND_IN_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind /*kind*/) {
  enabled = false;
  return CUPTI_SUCCESS;
}
STAND_IN_EXPORT CUptiResult cuptiActivityFlushAll(std::uint32_t /*flag*/) {
  hand_back();
  return CUPTI_SUCCESS;
}
STAND_IN_EXPORT CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t validBufferSizeBytes,
                                                       CUpti_Activity** record) {
  std::size_t at = 0;
  if (*record != nullptr) {
    at = static_cast<std::size_t>(reinterpret_cast<std::uint8_t*>(*record) - buffer);
    at += (*record)->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? sizeof(CUpti_ActivityKernel10)
          : (*record)->kind == CUPTI_ACTIVITY_KIND_MEMCPY          ? sizeof(CUpti_ActivityMemcpy6)
                                                                   : sizeof(CUpti_ActivityMemset4);
  }
  if (at >= validBufferSizeBytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(buffer + at);
  return CUPTI_SUCCESS;
}
