// Adds the file name to error messages.
//
//   context.damaged("there are two tensors 'w'");   // Error(data): "net.onnx: there are two tensors ...; the file ..."
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "onnx/file/model.h"

namespace ddp {

// Keeps a reference to the path.
class FileContext {
 public:
  explicit FileContext(const std::filesystem::path& path) : path_(path) {}
  [[noreturn]] void damaged(const std::string& what) const {
    fail(ExitCode::data, what + "; the file is damaged or not an ONNX model");
  }
  [[noreturn]] void refuse(const std::string& what) const { fail(ExitCode::usage, what); }
  [[noreturn]] void fail(ExitCode code, const std::string& what) const {
    throw Error(code, fmt::format("{}: {}", path_.string(), what));
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path& path_;
};

}  // namespace ddp
