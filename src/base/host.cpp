#include "base/host.h"

#include <unistd.h>

#include <array>

namespace ddp {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

}  // namespace ddp
