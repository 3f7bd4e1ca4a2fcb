#include "comm/transport/mpi.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/transport/backoff.h"
#include "comm/transport/doorbells.h"
#include "comm/transport/mpi_check.h"

namespace ddp {
namespace {

// Messages travel in pieces: a piece that arrives shows that the peer is alive and keeps the polling quick, and a piece
// fits MPI's int counts whatever the message's size.
constexpr std::size_t kPieceBytes = std::size_t{128} << 10U;

// All messages of a communicator use the same tag: both sides perform the same operations in the same order.
constexpr int kTag = 0;

// Two ranks that wait for a third must not wake each other for ever.
constexpr int kAnswers = 4;

// An active request: a piece of a message, or the duplication of the communicator (peer -1: all others).
struct Piece {
  int peer = 0;
  int receive_bytes = -1;  // -1: not a receive
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator() { requests_.reserve(64); }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  ~MpiCommunicator() override {
    int finalized = 0;
    static_cast<void>(MPI_Finalized(&finalized));
    // With active requests the communicator is not freed; only abort() can follow.
    if (finalized == 0 && comm_ != MPI_COMM_NULL && requests_.empty()) static_cast<void>(MPI_Comm_free(&comm_));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Communicator> duplicate() override {
    auto copy = duplicate_of(comm_, timeout());
    copy->bells_ = bells_;
    return copy;
  }

  void abort(int exit_code) noexcept override { static_cast<void>(MPI_Abort(MPI_COMM_WORLD, exit_code)); }

  static std::unique_ptr<MpiCommunicator> duplicate_of(MPI_Comm parent, double timeout_seconds) {
    auto copy = std::make_unique<MpiCommunicator>();
    copy->set_timeout(timeout_seconds);
    DDP_MPI(MPI_Comm_rank(parent, &copy->rank_));
    DDP_MPI(MPI_Comm_size(parent, &copy->size_));
    MPI_Request request = MPI_REQUEST_NULL;
    DDP_MPI(MPI_Comm_idup(parent, &copy->comm_, &request));
    copy->add(request, {-1, -1});
    copy->wait("duplicate");
    DDP_MPI(MPI_Comm_set_errhandler(copy->comm_, MPI_ERRORS_RETURN));
    return copy;
  }

  static std::unique_ptr<MpiCommunicator> with_bells(MPI_Comm parent, double timeout_seconds) {
    auto ranks = duplicate_of(parent, timeout_seconds);
    ranks->bells_ = std::make_shared<Doorbells>(*ranks);
    return ranks;
  }

 protected:
  void post(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    for (const Incoming& message : in) {
      for_each_piece(message.data, [&](std::byte* data, int bytes) {
        MPI_Request request = MPI_REQUEST_NULL;
        DDP_MPI(MPI_Irecv(data, bytes, MPI_BYTE, message.from, kTag, comm_, &request));
        add(request, {message.from, bytes});
      });
    }
    for (const Outgoing& message : out) {
      for_each_piece(message.data, [&](const std::byte* data, int bytes) {
        MPI_Request request = MPI_REQUEST_NULL;
        DDP_MPI(MPI_Isend(data, bytes, MPI_BYTE, message.to, kTag, comm_, &request));
        add(request, {message.to, -1});
      });
      ring(message.to);
    }
  }

  Progress poll() override {
    if (bells_ != nullptr) heard_ = bells_->heard();
    const int count = static_cast<int>(requests_.size());
    done_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int done = 0;
    const int code = MPI_Testsome(count, requests_.data(), &done, done_.data(), statuses_.data());
    if (code != MPI_ERR_IN_STATUS) DDP_MPI(code);
    if (done == MPI_UNDEFINED) done = 0;
    for (int i = 0; i < done; ++i) {
      const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
      if (code == MPI_ERR_IN_STATUS) check_mpi(status.MPI_ERROR, "MPI_Testsome", __FILE__, __LINE__);
      const Piece& piece = pieces_[static_cast<std::size_t>(done_[static_cast<std::size_t>(i)])];
      check_size(status, piece);
      // The sender of a long message may be waiting for its end.
      if (piece.receive_bytes >= 0) ring(piece.peer);
    }
    if (done > 0) answers_ = 0;
    finished_ += static_cast<std::size_t>(done);
    if (finished_ == requests_.size()) {
      forget();
      return Progress::all;
    }
    if (done == 0) answer();
    return done > 0 ? Progress::some : Progress::none;
  }

  void pause(Backoff& backoff) override {
    if (bells_ == nullptr) {
      backoff.pause();
    } else {
      backoff.pause([&](std::chrono::microseconds most) { rung_ = bells_->sleep(heard_, most) || rung_; });
    }
  }

  std::vector<int> pending_peers() const override {
    std::vector<int> peers;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == pieces_[i].peer || (pieces_[i].peer < 0 && peer != rank_)) peers.push_back(peer);
      }
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  }

  // Cancels unmatched receives, so that nothing writes to their buffers any more.
  void give_up() noexcept override {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL || pieces_[i].receive_bytes < 0) continue;
      int done = 0;
      static_cast<void>(MPI_Cancel(&requests_[i]));
      static_cast<void>(MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE));
    }
  }

 private:
  // Calls begin(data, bytes) for each piece; an empty message is one empty piece.
  template <class Bytes, class Begin>
  static void for_each_piece(Bytes message, Begin begin) {
    do {
      const std::size_t bytes = std::min(message.size(), kPieceBytes);
      begin(message.data(), static_cast<int>(bytes));
      message = message.subspan(bytes);
    } while (!message.empty());
  }

  void add(MPI_Request request, Piece piece) {
    requests_.push_back(request);
    pieces_.push_back(piece);
  }

  void ring(int peer) {
    if (bells_ != nullptr && peer >= 0) bells_->ring(peer);
  }

  // MPI may move a long message in several turns of both ranks, none of which completes a request: after a ring that completed
  // none, the peers get their turn.
  void answer() {
    if (!rung_ || answers_ == kAnswers) return;
    rung_ = false;
    ++answers_;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) ring(pieces_[i].peer);
    }
  }

  void forget() {
    requests_.clear();
    pieces_.clear();
    finished_ = 0;
  }

  void check_size(const MPI_Status& status, const Piece& piece) const {
    if (piece.receive_bytes < 0) return;
    int bytes = 0;
    DDP_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
    check(bytes == piece.receive_bytes, ExitCode::internal,
          "internal error: {} bytes are expected from rank {}, which sends {}", piece.receive_bytes, piece.peer, bytes);
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<Doorbells> bells_;  // of the same ranks; nullptr: none yet
  std::uint32_t heard_ = 0;           // of this rank's bell before the last poll
  bool rung_ = false;                 // it has ended a sleep, and no poll has followed
  int answers_ = 0;                   // since the last progress
  // The active requests; a completed one is MPI_REQUEST_NULL.
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;
  std::size_t finished_ = 0;
  // Results of MPI_Testsome, kept between calls so that a step allocates nothing.
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

// A part of MPI_COMM_WORLD, as long as this object exists.
class PartCommunicator {
 public:
  // The ranks of this host.
  static PartCommunicator host(int rank) {
    PartCommunicator part;
    DDP_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &part.handle_));
    return part;
  }
  // The ranks below `count`, or none on the others.
  static PartCommunicator first(int count) {
    PartCommunicator part;
    int rank = 0;
    DDP_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    DDP_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank < count ? 0 : MPI_UNDEFINED, rank, &part.handle_));
    return part;
  }
  PartCommunicator() = default;
  PartCommunicator(PartCommunicator&& other) noexcept : handle_(std::exchange(other.handle_, MPI_COMM_NULL)) {}
  PartCommunicator(const PartCommunicator&) = delete;
  PartCommunicator& operator=(const PartCommunicator&) = delete;
  PartCommunicator& operator=(PartCommunicator&&) = delete;
  ~PartCommunicator() {
    if (handle_ != MPI_COMM_NULL) static_cast<void>(MPI_Comm_free(&handle_));
  }

  MPI_Comm get() const { return handle_; }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

}  // namespace

int mpi_lowest_rank_of_host() {
  int rank = 0;
  DDP_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  const PartCommunicator host = PartCommunicator::host(rank);
  DDP_MPI(MPI_Bcast(&rank, 1, MPI_INT, 0, host.get()));
  return rank;
}

std::unique_ptr<Communicator> make_mpi_communicator_of_first(int count, double timeout_seconds) {
  const PartCommunicator first = PartCommunicator::first(count);
  if (first.get() == MPI_COMM_NULL) return nullptr;
  return MpiCommunicator::with_bells(first.get(), timeout_seconds);
}

std::unique_ptr<Communicator> make_mpi_communicator(double timeout_seconds) {
  int initialized = 0;
  int thread_level = MPI_THREAD_SINGLE;
  static_cast<void>(MPI_Initialized(&initialized));
  DDP_ASSERT(initialized != 0);
  DDP_MPI(MPI_Query_thread(&thread_level));
  check(thread_level == MPI_THREAD_MULTIPLE, ExitCode::preflight,
        "this MPI library does not let several threads communicate (MPI_THREAD_MULTIPLE); use one that does, such as "
        "Open MPI 4");
  DDP_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  return MpiCommunicator::with_bells(MPI_COMM_WORLD, timeout_seconds);
}

}  // namespace ddp
