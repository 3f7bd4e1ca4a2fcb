// Replaces model.cpp in builds without libonnx (-DDDP_ONNX=OFF).
#include "base/error.h"
#include "onnx/file/model.h"

namespace ddp {
namespace {

[[noreturn]] void absent() {
  throw Error(ExitCode::usage, "this ddp_train was built without ONNX; build it with libonnx-dev and -DDDP_ONNX=ON");
}

}  // namespace

std::string read_onnx_file(const std::filesystem::path& /*path*/) { absent(); }

OnnxModel parse_onnx(const std::string& /*bytes*/, const std::filesystem::path& /*path*/) { absent(); }

std::string to_bytes(const OnnxModel& /*model*/) { absent(); }

std::string protobuf_version() { return "none"; }

}  // namespace ddp
