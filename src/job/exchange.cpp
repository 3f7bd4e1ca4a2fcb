#include "job/exchange.h"

#include "base/status/heartbeat.h"

namespace ddp {

std::vector<std::string> all_gather_text(const MpiSession& session, const std::string& mine, double timeout,
                                         const char* what) {
  session.ranks().set_timeout(timeout >= rank_timeout() ? timeout + kAfterWatchdog : timeout);
  return session.ranks().all_gather_text(mine, what);
}

}  // namespace ddp
