#include "explain/tensorboard.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>

#include "base/crc32c.h"
#include "base/host.h"

namespace ddp {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// The field numbers of tensorflow.Event, Summary and Summary.Value (event.proto and summary.proto of TensorFlow).
enum EventField : int { wall_time_field = 1, step_field = 2, version_field = 3, summary_field = 5 };
enum SummaryField : int { value_field = 1 };
enum ValueField : int { tag_field = 1, simple_value_field = 2 };

// The bytes that `write` writes to a stream.
template <class Write>
std::string message(Write write) {
  std::string bytes;
  StringOutputStream string(&bytes);
  CodedOutputStream stream(&string);
  write(&stream);
  stream.Trim();
  return bytes;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFFU);
  return text;
}

std::filesystem::path event_file(const std::filesystem::path& run_dir) {
  return run_dir / fmt::format("events.out.tfevents.{:010d}.{}.{}", static_cast<std::int64_t>(wall_time()), host_name(),
                               ::getpid());
}

}  // namespace

bool has_tensorboard() { return true; }

std::string tensorboard_record(std::string_view data) {
  const std::string length = little_endian(data.size(), 8);
  return length + little_endian(masked_crc32c(length), 4) + std::string(data) + little_endian(masked_crc32c(data), 4);
}

TensorBoard::TensorBoard(const std::filesystem::path& run_dir)
    : file_(File(event_file(run_dir), File::Mode::append, ExitCode::checkpoint)) {
  file_.write(tensorboard_record(message([](CodedOutputStream* stream) {
    WireFormatLite::WriteDouble(wall_time_field, wall_time(), stream);
    WireFormatLite::WriteString(version_field, "brain.Event:2", stream);
  })));
}

void TensorBoard::write(std::int64_t step, std::span<const std::pair<std::string, double>> values) {
  const std::string summary = message([&](CodedOutputStream* stream) {
    for (const auto& [tag, value] : values) {
      WireFormatLite::WriteBytes(value_field, message([&, &name = tag, number = value](CodedOutputStream* inner) {
                                   WireFormatLite::WriteString(tag_field, name, inner);
                                   WireFormatLite::WriteFloat(simple_value_field, static_cast<float>(number), inner);
                                 }),
                                 stream);
    }
  });
  file_.write(tensorboard_record(message([&](CodedOutputStream* stream) {
    WireFormatLite::WriteDouble(wall_time_field, wall_time(), stream);
    WireFormatLite::WriteInt64(step_field, step, stream);
    WireFormatLite::WriteBytes(summary_field, summary, stream);
  })));
}

void TensorBoard::training(const TrainRecord& record) {
  std::vector<std::pair<std::string, double>> values = {{"training/loss", record.loss},
                                                        {"training/learning_rate", record.lr},
                                                        {"speed/images_per_second", record.images_per_second}};
  if (!std::isnan(record.grad_norm)) values.emplace_back("training/gradient_norm", record.grad_norm);
  if (record.mfu) values.emplace_back("speed/share_of_peak", *record.mfu);
  const double seconds = record.phases.sum();
  for (const Phase phase : kPhases) {
    if (seconds > 0) values.emplace_back(fmt::format("phases/{}", phase_key(phase)), record.phases[phase] / seconds);
  }
  write(record.step, values);
}

void TensorBoard::evaluation(const EvalRecord& record) {
  std::vector<std::pair<std::string, double>> values = {{"test/loss", record.val_loss},
                                                        {"test/accuracy", record.val_accuracy}};
  if (record.top5_accuracy) values.emplace_back("test/top5_accuracy", *record.top5_accuracy);
  write(record.step, values);
}

}  // namespace ddp
