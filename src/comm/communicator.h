// The ranks of a job and their communication: messages, and collectives built on them.
//
//   std::int64_t stop = wants_to_stop() ? 1 : 0;
//   ranks.all_reduce(std::span(&stop, 1), ReduceOp::max);   // every rank gets the same result
//
// A transport (self.h, mpi.h, threads.h) only moves messages; every collective is implemented once, here, on top of
// exchange(). Therefore all transports give the same results, and errors name the rank that does not respond. Each rank
// sends about log2(size) messages per collective, and no collective but all_gather() sends more bytes per rank the more ranks
// there are, except by that factor (docs/communication.md has the counts). Collectives are meant for control messages and short
// arrays; reduce.h sums gradients.
//
// Rules for callers:
// - All ranks call the same operations in the same order, with the same sizes.
// - One thread at a time uses a communicator; a second thread takes a duplicate() of its own.
// - Every wait is bounded: after timeout() seconds without progress, here or, if a watchdog runs, on any rank
//   (base/status/heartbeat.h), the call throws Error(ExitCode::rank_lost). After an error the communicator is unusable, and
//   the transport may still use the memory of the failed call: end the job with abort().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp {

class Backoff;

enum class ReduceOp { sum, min, max };

// A message to another rank; `data` stays valid and unchanged until exchange() returns.
struct Outgoing {
  std::span<const std::byte> data;
  int to = 0;
};

// The buffer for a message from another rank, of exactly the size that it sends.
struct Incoming {
  std::span<std::byte> data;
  int from = 0;
};

// What a rank has sent.
struct MessageCount {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns once all ranks have called it.
  void barrier();
  // Copies the root's bytes to all ranks (binomial tree).
  void broadcast(std::span<std::byte> data, int root);
  // The root's text, on all ranks; what the others pass is ignored.
  std::string broadcast_text(const std::string& text, int root);
  // Combines the ranks' arrays elementwise, with bit-identical results on all ranks: sums of doubles in rank order. Min and
  // max of doubles propagate NaN.
  void all_reduce(std::span<double> values, ReduceOp op);
  void all_reduce(std::span<std::int64_t> values, ReduceOp op);
  // The sum of the arrays in an order that is fixed for a number of ranks, with bit-identical results on all: of few ranks in rank
  // order, of more along a tree, in fewer messages and bytes than all_reduce().
  void tree_sum(std::span<double> values);
  // Concatenates the ranks' arrays in rank order; all.size() == mine.size() * size(). `operation` names the work in
  // errors.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const char* operation = "all_gather");
  // The same on rank 0 only; the others pass an empty `all` (binomial tree).
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, const char* operation = "gather");
  // The texts of all ranks, of any length, in rank order. Equal texts of consecutive ranks, such as those of a host, are sent
  // once.
  std::vector<std::string> all_gather_text(const std::string& mine, const char* operation);
  // The same on rank 0 only; nothing on the others.
  std::vector<std::string> gather_text(const std::string& mine, const char* operation);

  void send(std::span<const std::byte> data, int to);
  void receive(std::span<std::byte> data, int from);
  // Sends and receives at the same time; a rank may exchange with itself.
  void send_receive(std::span<const std::byte> out, int to, std::span<std::byte> in, int from);
  // Sends and receives any number of messages at the same time, to and from other ranks. Messages between two ranks
  // arrive in the order in which they were listed. `operation` names the work in errors.
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in, const char* operation);

  // A second communicator of the same ranks, whose messages are separate from this one's. Collective.
  virtual std::unique_ptr<Communicator> duplicate() = 0;

  // Ends all ranks with this exit code, immediately and without cleanup.
  virtual void abort(int exit_code) noexcept = 0;

  // Seconds without any progress after which a wait gives up; duplicates inherit it.
  double timeout() const { return timeout_; }
  void set_timeout(double seconds) { timeout_ = seconds; }

  // How long a wait spins and yields before it sleeps between polls (backoff.h). The default suits a thread that shares
  // its core with no other; a thread that waits beside compute on the same core sets 0.
  void set_eager_seconds(double seconds) { eager_seconds_ = seconds; }
  double eager_seconds() const { return eager_seconds_; }

  // By this object so far.
  const MessageCount& sent() const { return sent_; }

  // Makes this rank's present and later waits throw. May be called from any thread: an owner uses it to free a thread
  // that waits for ranks which will not respond.
  void interrupt() noexcept { interrupted_.store(true); }

 protected:
  enum class Progress { none, some, all };

  // The transport's half of exchange(): begins the messages ...
  virtual void post(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;
  // ... moves what can be moved without waiting ...
  virtual Progress poll() = 0;
  // ... sleeps, spins or yields until the next poll ...
  virtual void pause(Backoff& backoff);
  // ... says which ranks it still waits for ...
  virtual std::vector<int> pending_peers() const = 0;
  // ... and cancels unfinished messages after an error.
  virtual void give_up() noexcept = 0;

  // Polls until everything posted has moved; throws on timeout and interrupt().
  void wait(const char* operation);

 private:
  friend class GroupCommunicator;  // uses the transport of another communicator (group.h)

  template <class T>
  void reduce_gathered(std::span<T> values, ReduceOp op);
  template <class T>
  void reduce_by_doubling(std::span<T> values, ReduceOp op);
  void transpose(std::span<const double> values);
  void sum_in_rank_order(std::span<double> values);
  void all_gather_parts(std::span<const double> own, std::span<double> all);
  void send_text(const std::string& text, std::span<const int> to, const char* operation);
  std::string receive_text(int from, const char* operation);
  std::string packed_texts(const std::string& mine, const char* operation);
  void throw_if_unusable(const char* operation) const;
  void fail(const std::string& why) noexcept;

  double timeout_ = 600;
  double eager_seconds_ = 1e-3;
  std::atomic<bool> interrupted_ = false;
  MessageCount sent_;
  std::string failure_;  // the first error; no call works after it
  // Kept between calls, so that a step allocates nothing.
  std::vector<Outgoing> outgoing_;
  std::vector<std::byte> gathered_;
  std::vector<std::byte> from_here_;  // blocks of an all_gather, this rank's first
  // For a sum in rank order: the parts of this rank's array by their distance, and those that travel.
  std::vector<double> parts_;
  std::vector<double> packed_;
  std::vector<double> arriving_;
};

// "rank 3" or "ranks 1, 2".
std::string rank_list(std::span<const int> ranks);

}  // namespace ddp
