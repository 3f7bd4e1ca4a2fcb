// Open MPI's daemon (orted), the parent of the ranks on every host but mpirun's. If the link to mpirun is lost, it goes on for a
// quarter of an hour, until TCP gives up, and so do ranks that have not met the others yet.
//
//   if (daemon_is_cut_off()) end_cut_off_daemon();   // launcher.h; on a rank, which then exits
#pragma once

#include <cstdint>
#include <set>
#include <string_view>

namespace ddp {

// Whether the parent is a daemon, and mpirun's host has not acknowledged anything that it sent for more than ten seconds.
bool daemon_is_cut_off();

// The most retransmissions in a row among these sockets, by their inodes, in a table such as /proc/net/tcp.
int most_retransmissions(std::string_view table, const std::set<std::uint64_t>& sockets);

}  // namespace ddp
