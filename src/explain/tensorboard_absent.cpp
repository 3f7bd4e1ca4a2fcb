// In the place of tensorboard.cpp in a build without protobuf: has_tensorboard() is false, and nothing is written.
#include "base/error.h"
#include "explain/tensorboard.h"

namespace ddp {

bool has_tensorboard() { return false; }

TensorBoard::TensorBoard(const std::filesystem::path& run_dir)
    : file_(run_dir, File::Mode::read, ExitCode::checkpoint) {
  DDP_ASSERT(has_tensorboard());
}

void TensorBoard::training(const TrainRecord& /*record*/) {}
void TensorBoard::evaluation(const EvalRecord& /*record*/) {}

}  // namespace ddp
