// A library that launch/run loads into Open MPI's mpirun (LD_PRELOAD) for a job on one host. By itself mpirun accepts
// connections from all networks, for daemons on other hosts, and has no setting against that. Here sockets that are bound to all
// addresses are bound to the loopback address instead. The ranks do not load it.
//
//   LD_PRELOAD=libddp_loopback.so mpirun -np 2 ddp_train ...
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

using Bind = int (*)(int, const sockaddr*, socklen_t);

// What mpirun starts inherits its environment.
__attribute__((constructor)) void load_into_this_process_only() {
  // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
  const char* const libraries = std::getenv("LD_PRELOAD");
  const char* const others = libraries == nullptr ? nullptr : std::strchr(libraries, ':');
  if (others == nullptr) {
    ::unsetenv("LD_PRELOAD");
  } else {
    ::setenv("LD_PRELOAD", others + 1, /*replace=*/1);
  }
  // NOLINTEND(concurrency-mt-unsafe)
}

// Without a loopback address of this family as it was wanted.
template <typename Address>
int bind_local(Bind original, int socket, const Address& local, const sockaddr* wanted, socklen_t length) {
  const int result = original(socket, reinterpret_cast<const sockaddr*>(&local), sizeof local);
  return result != 0 && errno == EADDRNOTAVAIL ? original(socket, wanted, length) : result;
}

}  // namespace

// Takes precedence over the C library's function.
extern "C" int bind(int fd, const sockaddr* addr, socklen_t len) noexcept {
  static const auto original = reinterpret_cast<Bind>(::dlsym(RTLD_NEXT, "bind"));
  if (original == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  if (addr != nullptr && addr->sa_family == AF_INET && len >= sizeof(sockaddr_in)) {
    sockaddr_in local{};
    std::memcpy(&local, addr, sizeof local);
    if (local.sin_addr.s_addr == htonl(INADDR_ANY)) {
      local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      return bind_local(original, fd, local, addr, len);
    }
  }
  if (addr != nullptr && addr->sa_family == AF_INET6 && len >= sizeof(sockaddr_in6)) {
    sockaddr_in6 local{};
    std::memcpy(&local, addr, sizeof local);
    if (std::memcmp(&local.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0) {
      local.sin6_addr = in6addr_loopback;
      return bind_local(original, fd, local, addr, len);
    }
  }
  return original(fd, addr, len);
}
