// TensorBoard's event files: the records of a run as scalars, written while it goes on.
//
//   TensorBoard board(run_dir);            // RUN/events.out.tfevents.1789...host.4711
//   folder->log().set_listener(&board);
//
// The format is a sequence of records, each with its length and the masked CRC-32C of both, which hold protobuf messages
// of the type tensorflow.Event.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/logs/log_file.h"
#include "metrics/logs/run_log.h"

namespace ddp {

// Whether this program was built with protobuf; without, no file is written.
bool has_tensorboard();

class TensorBoard final : public LogListener {
 public:
  // Throws Error(checkpoint) if the file cannot be created.
  explicit TensorBoard(const std::filesystem::path& run_dir);

  void training(const TrainRecord& record) override;
  void evaluation(const EvalRecord& record) override;

 private:
  void write(std::int64_t step, std::span<const std::pair<std::string, double>> values);

  LogFile file_;
};

// A record of an event file.
std::string tensorboard_record(std::string_view data);

}  // namespace ddp
