#include "comm/transport/group.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ddp {

// Numbers the ranks of another communicator anew, whose transport it uses.
class GroupCommunicator final : public Communicator {
 public:
  GroupCommunicator(std::unique_ptr<Communicator> all, std::vector<int> members)
      : all_(std::move(all)), members_(std::move(members)) {
    const auto own = std::find(members_.begin(), members_.end(), all_->rank());
    DDP_ASSERT(own != members_.end());
    rank_ = static_cast<int>(own - members_.begin());
    set_timeout(all_->timeout());
    set_eager_seconds(all_->eager_seconds());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  std::unique_ptr<Communicator> duplicate() override {
    auto copy = std::make_unique<GroupCommunicator>(all_->duplicate(), members_);
    copy->set_timeout(timeout());
    return copy;
  }

  void abort(int exit_code) noexcept override { all_->abort(exit_code); }

 protected:
  void post(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    outgoing_.assign(out.begin(), out.end());
    incoming_.assign(in.begin(), in.end());
    for (Outgoing& message : outgoing_) message.to = members_.at(static_cast<std::size_t>(message.to));
    for (Incoming& message : incoming_) message.from = members_.at(static_cast<std::size_t>(message.from));
    all_->post(outgoing_, incoming_);
  }
  Progress poll() override { return all_->poll(); }
  void pause(Backoff& backoff) override { all_->pause(backoff); }
  std::vector<int> pending_peers() const override { return all_->pending_peers(); }
  void give_up() noexcept override { all_->give_up(); }

 private:
  std::unique_ptr<Communicator> all_;
  std::vector<int> members_;
  int rank_ = 0;
  // Kept between calls, so that a step allocates nothing.
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

std::unique_ptr<Communicator> make_group(Communicator& ranks, std::vector<int> members) {
  return std::make_unique<GroupCommunicator>(ranks.duplicate(), std::move(members));
}

}  // namespace ddp
