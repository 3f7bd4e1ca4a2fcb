// An error with which several ranks exit together, with the same exit code; one of them reports it.
//
//   throw JointError(ExitCode::data, "train-images: ...", /*reporter=*/rank == lowest_failing_rank);
#pragma once

#include <string>

#include "base/error.h"

namespace ddp {

class JointError : public Error {
 public:
  JointError(ExitCode code, const std::string& message, bool reporter) : Error(code, message), reporter_(reporter) {}
  // True on the one rank that writes the message.
  bool reporter() const { return reporter_; }

 private:
  bool reporter_;
};

}  // namespace ddp
