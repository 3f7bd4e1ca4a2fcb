// One rank of many, whose messages arrive at once and hold zeros: what it sends can be counted without the other ranks.
//
//   CountingCommunicator rank(/*rank=*/5, /*size=*/4096);
//   rank.barrier();
//   EXPECT_EQ(rank.sent().messages, 12U);
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace ddp {

class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Communicator> duplicate() override { return std::make_unique<CountingCommunicator>(rank_, size_); }
  void abort(int /*exit_code*/) noexcept override {}

 protected:
  void post(std::span<const Outgoing> /*out*/, std::span<const Incoming> in) override {
    for (const Incoming& message : in) std::fill(message.data.begin(), message.data.end(), std::byte{0});
  }
  Progress poll() override { return Progress::all; }
  std::vector<int> pending_peers() const override { return {}; }
  void give_up() noexcept override {}

 private:
  int rank_;
  int size_;
};

}  // namespace ddp
