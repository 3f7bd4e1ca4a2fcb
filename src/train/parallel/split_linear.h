// Linear layers whose outputs are divided among the ranks, --split-linear (backend/ops/linear.h): which layers, which part
// of their parameters a rank holds, and what the ranks send each other.
//
//   const std::vector<int> layers = layers_to_split(graph, "fc*", ranks.size());
//   const ParameterSlices slices(graph, layers, ranks.size(), ranks.rank());
//   RankExchange exchange(ranks.duplicate());   // for ModelState::exchange
//   ...                                         // each rank updates its part
//   slices.gather(ranks, weights);              // now they are whole, and equal on all ranks
//
// Note [What a rank holds]
// All ranks have memory for the whole parameters, and everything outside of steps sees them whole: checkpoints, evaluations
// and hashes gather them first. Within steps a rank computes the gradient of its part only, elsewhere it is zero, and
// updates its part only, elsewhere weights and optimizer state are those of the last gather().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/over_shards.h"
#include "backend/update/flat_update.h"
#include "base/partition.h"
#include "comm/communicator.h"
#include "model/graph.h"

namespace ddp {

// The linear layers whose names match one of the comma-separated patterns. Throws Error(usage) if a pattern matches none,
// or if the number of ranks does not divide the outputs of one.
std::vector<int> layers_to_split(const Graph& graph, const std::string& patterns, int ranks);

// Those that the graph divides, for which each part is of as many outputs (Graph::split_linear()).
std::vector<int> divided_layers(const Graph& graph);

class ParameterSlices {
 public:
  // Nothing is divided.
  ParameterSlices() = default;
  // `rank` holds part `rank` of `ranks` equal parts of the weights and biases of these layers.
  ParameterSlices(const Graph& graph, std::span<const int> layers, int ranks, int rank);

  bool any() const { return !divided_.empty(); }
  std::span<const int> layers() const { return layers_; }
  // For each parameter, whether it is divided; empty: none is.
  const std::vector<bool>& divided() const { return is_divided_; }
  // The divided parameters in the flat buffer, with what lies behind them; and the parts of them that this rank holds.
  std::vector<Range> whole() const;
  std::vector<Range> held() const;
  // The last elements, up to `most`, of this rank's part of the last divided weight.
  Range last_weights(std::int64_t most) const;
  // Elements of all divided parameters.
  std::int64_t elements() const;

  // Makes the segments of divided parameters those of this rank. One segment for each parameter of the graph.
  void restrict_to_held(std::vector<ParameterSegment>& segments) const;
  // Collective: all parts of the divided parameters of a flat buffer, from the ranks that hold them.
  void gather(Communicator& ranks, std::span<float> flat) const;

 private:
  struct Divided {
    std::size_t parameter = 0;
    Range whole;            // with what lies behind it
    std::int64_t each = 0;  // elements of a part
    bool bias = false;
  };
  Range part_of(const Divided& divided, int rank) const {
    return {divided.whole.begin + rank * divided.each, divided.whole.begin + (rank + 1) * divided.each};
  }

  std::vector<int> layers_;
  std::vector<Divided> divided_;
  std::vector<bool> is_divided_;
  int ranks_ = 1;
  int rank_ = 0;
};

// Moves activations by messages; counts them.
class RankExchange {
 public:
  explicit RankExchange(std::unique_ptr<Communicator> ranks);

  // The caller sets the samples before each pass.
  ShardExchange& shards() { return shards_; }
  // To other ranks, since the beginning.
  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  void move(std::span<const std::span<const float>> out, std::span<const std::span<float>> in);

  std::unique_ptr<Communicator> ranks_;
  ShardExchange shards_;
  std::uint64_t bytes_sent_ = 0;
  // Kept between calls, so that a step allocates nothing.
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

// Bytes that a rank sends in a step, the mean over the ranks, for a layer that is divided or not: its activations and
// their gradients, or the gradient of its parameters in a ring.
struct LayerTraffic {
  double activations = 0;
  double gradients = 0;
};
LayerTraffic layer_traffic(const Graph& graph, int layer, int ranks, std::int64_t global_batch);
LayerTraffic layer_traffic(const Graph& graph, std::span<const int> layers, int ranks, std::int64_t global_batch);

// The linear layers that this number of ranks can divide, and that send less then.
std::vector<int> layers_cheaper_divided(const Graph& graph, int ranks, std::int64_t global_batch);

// For the header of a run: the layers, and what is sent.
std::string divided_text(const Graph& graph, const ParameterSlices& slices, int ranks, std::int64_t global_batch);
// For the command plan: which linear layers are cheaper to divide, and what is saved; a line without its end.
std::string split_advice(const Graph& graph, int ranks, std::int64_t global_batch);

}  // namespace ddp
