// A model compiled for one batch size on one backend: all memory planned, nothing allocated in a step.
//
//   Network network(backend, graph, {.batch = 64, .image = {1, 28, 28}, .scale = {1 / 255.0F}, .shift = {0}}, plan);
//   network.forward(Pass::training, {parameters, statistics}, {pixels, nullptr, labels, count},
//                   {loss_sum, correct, /*gradient_scale=*/1.0F / global_batch});
//   network.backward(parameters, gradient, [&](std::int64_t offset) { reducer.ready(offset); });
//
// Everything is enqueued on the backend (Note [Order of work] in backend/device_queue.h), and all pointers refer to its
// memory. Parameters and gradients are flat buffers in the order of Graph::parameters(), running statistics in the
// order of Graph::statistics(). Backward fills the gradient from end to beginning, except for the padding between
// parameters and for those before the first one that is trained (Parameter::frozen), and reports after each stage the offset from which it is final.
//
// Note [Values]
// Stages communicate by values: an activation and its gradient, each at an offset in the arena. The gradient of a value
// with several readers is accumulated: backward visits the stages from last to first; the first reader visited writes
// the gradient, the others add to it, or write to a temporary buffer that is then added.
//
// Note [Packed weights]
// Operators whose kernels read weights in another form (OpTraits::packed_form) find them converted: those of all steps at
// the begin of forward. Gradients that have this form too are converted back for some steps at once, which together have
// kPackedBytes of them, and reported as final after that.
//
// Note [Parts]
// A network may be a part of the stages, between two cuts (model/cuts.h), for pipelines. Its parameters and their gradient
// are then the part of the flat buffers that parameters_of() gives; running statistics are those of the whole graph. Unless
// it has the first stage, its input is what crosses the cut before it: the caller writes it to prepare_incoming() before
// forward, and reads its gradient from incoming_gradient() after backward. Unless it has the last stage there is no loss: the
// caller reads outgoing() after forward, and writes to prepare_outgoing_gradient() before backward. What crosses a cut
// has the layout of the stage before it, and the bits that it has in the whole network. No gradient crosses a cut before
// which no parameter is trained.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/memory.h"
#include "base/partition.h"
#include "model/graph.h"
#include "model/layout_plan.h"
#include "model/memory_plan.h"
#include "model/stages.h"

namespace ddp {

class Network;

struct NetworkConfig {
  std::int64_t batch = 0;
  Shape image;
  std::vector<float> scale;  // per channel: activation = byte * scale + shift
  std::vector<float> shift;
  float label_smoothing = 0;  // in training; evaluation uses plain cross-entropy
  bool plan_only = false;     // only memory() and describe() are usable; nothing is allocated
  // A network whose memory this one uses too, if that is large enough: nothing of one is needed while the other computes.
  const Network* lender = nullptr;
  // Whether stages may be computed by one operator (OpJoiner::join()), so that observers do not see what lies between them.
  bool join = true;
  // Only these stages, of those of the graph; empty: all. See Note [Parts].
  Range stages = {};
  bool forward_only = false;  // memory for evaluations only: backward must not be called
  // How Samples::edits fill borders, see InputSpec.
  bool edits_reflect = false;
  std::vector<std::uint8_t> fill = {};
};

// The samples of a batch, count <= Network::batch() of them.
struct Samples {
  const std::uint8_t* pixels = nullptr;  // images [..][C][H][W]
  const std::int32_t* rows = nullptr;    // the index of each sample's image; null: the first `count` in order
  const std::int32_t* labels = nullptr;  // [count]
  std::int64_t count = 0;
  const std::uint64_t* keys = nullptr;  // [count], for dropout in training
  // With mixup, the second label and the weight of the first (LossArguments); otherwise null.
  const std::int32_t* other_labels = nullptr;  // [count]
  const float* label_weights = nullptr;        // [count]
  const ImageEdit* edits = nullptr;            // [count], how the images are to be changed; null: not at all
  TableRow step = {};                          // what is copied first; some of the above may be among it
};

// The tensors of a network.
struct ModelState {
  const float* parameters = nullptr;
  float* statistics = nullptr;  // running statistics: updated in training, read in evaluation
  // For synchronized batch normalisations in training; must stay valid until backward. Null: statistics of the shard.
  const SumOverShards* sums = nullptr;
  // For linear layers divided among the ranks, likewise. Null: the parameters are whole.
  const ShardExchange* exchange = nullptr;
};

// The mode of batch normalisation and dropout; backward requires training.
enum class Pass { training, evaluation };

// What an observer of a pass is shown: values just computed, which later work overwrites.
struct Observed {
  bool backward = false;
  std::string where = {};        // "the output of layer 'conv1'"
  ConstActivations values = {};  // in the backend's memory
  Shape shape = {};              // of a sample; of a parameter's gradient all of it
  Layout layout = Layout::plain;
  std::int64_t samples = 0;         // 0: a parameter's gradient
  std::int64_t stored_samples = 0;  // for which the memory is laid out
};

// One stage or reorder of a network: what is computed, and the bytes of the tensors that it has to read and write.
struct StageWork {
  std::string name;
  std::string kind;
  Layout layout = Layout::plain;
  double forward_flops = 0;  // a multiply-add is two
  double backward_flops = 0;
  double forward_bytes = 0;
  double backward_bytes = 0;
  OpTraffic traffic = {};  // of the kernels on a GPU, with the sums of gradients of which there are several
  Range stages = {};       // of the graph; none for a reorder, which is in front of `begin`
};

struct LossOutput {
  double* loss_sum = nullptr;  // written: the sum over the samples
  double* correct = nullptr;   // added to: right answers
  float gradient_scale = 0;
  const double* loss_scale = nullptr;  // LossArguments
};

class Network {
 public:
  Network(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan);

  std::int64_t batch() const { return config_.batch; }
  const NetworkConfig& config() const { return config_; }
  std::int64_t image_elements() const { return config_.image.elements(); }
  std::int64_t classes() const { return loss_spec_.classes; }
  // The number of elements of the flat parameters and of their gradient: Graph::flat_elements(), or those of the part.
  std::int64_t flat_elements() const { return held_.size(); }
  // The memory of activations, gradients and workspaces, in bytes.
  const MemoryPlan& memory() const { return memory_; }
  // The stages with their layouts and kernels, one line each, human-readable.
  std::string describe() const;

  // Computes the loss over a batch and keeps what backward needs: the gradient of the loss sum times `gradient_scale`.
  void forward(Pass pass, const ModelState& state, const Samples& samples, const LossOutput& output);
  // The logits of the last forward: [count][classes] in the plain layout.
  ConstActivations logits() const { return values_.back().y; }
  Layout logits_layout() const { return values_.back().layout; }

  // Calls the observer with every value of the passes to come, in the order of computation; null: no longer. Recordings
  // do not call it.
  using Observer = std::function<void(const Observed&)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  // The work of each step of the passes, in the order of forward.
  std::vector<StageWork> work() const;
  // Calls the watch before and after each of these steps in the passes to come; null: no longer. Recordings do not.
  using StepWatch = std::function<void(std::size_t step, bool backward, bool begins)>;
  void watch_steps(StepWatch watch) { step_watch_ = std::move(watch); }

  // What crosses the ends of a part for so many samples, or its gradient: the bytes to be moved.
  std::span<std::byte> incoming_gradient(std::int64_t samples) const;
  std::span<std::byte> outgoing(std::int64_t samples) const;
  // The places to receive an input and the gradient of the output. Nothing of an earlier pass remains there.
  std::span<std::byte> prepare_incoming(std::int64_t samples);
  std::span<std::byte> prepare_outgoing_gradient(std::int64_t samples);

  using Ready = std::function<void(std::int64_t)>;
  // Overwrites `gradient` with the gradient for the samples of the last forward; calls `ready(offset)` when all
  // elements from `offset` on are final.
  void backward(const float* parameters, float* gradient, const Ready& ready);

 private:
  // See Note [Values].
  struct Value {
    std::string name;
    Shape shape;
    Layout layout = Layout::plain;
    int producer = -1;         // the step that computes it; -1: the input
    bool has_gradient = true;  // whether backward computes one
    std::vector<int> readers;  // steps, in order
    Activations y;
    Activations dy;
  };
  struct Step {
    std::string name;                 // of its stage, or of the first of those that are joined
    Range stages;                     // of the graph
    std::string last;                 // of the last of them
    std::vector<OpSpec> specs;        // of them all
    std::vector<std::size_t> inputs;  // values
    std::size_t output = 0;
    std::vector<int> parameters;
    std::int64_t statistics = -1;
    bool backward = true;
    std::unique_ptr<Op> op;
    OpTraits traits;  // of op
    std::string kernels;
    // Places in the arena.
    std::byte* saved = nullptr;
    std::byte* forward_workspace = nullptr;
    std::byte* backward_workspace = nullptr;
    std::byte* packed = nullptr;           // the weight as the operator reads it; null: plain
    std::byte* packed_gradient = nullptr;  // likewise
    std::vector<Activations> aside;        // of each input: temporary gradients, if it has several readers
  };
  // The planned buffers of a value (its activation and gradient) or of a step.
  struct Buffers {
    BufferId y = 0, dy = 0;
    BufferId saved = 0, forward_workspace = 0, backward_workspace = 0;
    std::optional<BufferId> packed, packed_gradient;
    std::vector<std::optional<BufferId>> aside;  // of each input
  };

  // The memory of the arguments of one call.
  template <class T>
  struct List {
    std::vector<T> all;
    template <class From, class Of>
    ArgumentList<T> fill(const std::vector<From>& from, Of of) {
      all.clear();
      for (const From& each : from) all.push_back(of(each));
      return ArgumentList<T>(std::span<const T>(all));
    }
  };
  struct Lists {
    List<ConstActivations> inputs;
    List<Activations> input_gradients;
    List<const float*> parameters;
    List<float*> parameter_gradients;
  };

  ArgumentList<ConstActivations> inputs_of(const Step& step);
  void show(bool backward, std::string_view where, const Value& value, ConstActivations values) const;
  void show_gradients(const Step& step, const BackwardArguments& arguments) const;
  static std::string place_of_output(const Step& step);
  std::size_t add_step(Step step, Layout out);
  void join(const std::vector<Stage>& stages, const LayoutPlan& plan, std::size_t first, Step& step) const;
  std::size_t in_layout(std::size_t value, Layout layout, std::size_t stage);
  void build_steps(const Graph& graph, const std::vector<Stage>& stages, const LayoutPlan& plan);
  bool first_part() const { return config_.stages.begin == 0; }
  // Where parameter `p` begins in the flat buffers.
  std::int64_t offset_of(int p) const { return parameters_[static_cast<std::size_t>(p)].offset - held_.begin; }
  std::span<std::byte> moved(const Value& value, bool gradient, std::int64_t samples) const;
  std::span<std::byte> prepared(const Value& value, bool gradient, std::int64_t samples);
  std::size_t elements_of(const Value& value) const;
  std::size_t bytes_of(const Value& value) const {
    return elements_of(value) * ddp::bytes_of(backend_.ops().traits().activation_element);
  }
  bool adds_in_place(int step) const;
  bool writes_aside(int step, std::size_t input) const;
  OpTraffic traffic_of(int index, const StageWork& work) const;
  int last_use_of(const Value& value) const;
  int backward_time(int step) const { return 2 * static_cast<int>(steps_.size()) - step; }
  void plan_memory();
  void place(const std::vector<Buffers>& values, const std::vector<Buffers>& steps);
  void plan_packing();
  std::span<const WeightPacking> packings(float* plain, std::byte* Step::*packed, int first, int last);
  void backward_step(int index, const float* parameters, float* gradient);
  void finish_gradients(int first, int last, float* gradient);
  void add_packing(std::vector<StageWork>& all) const;

  Backend& backend_;
  const std::vector<Parameter> parameters_;
  NetworkConfig config_;
  Range held_;  // of the flat buffers
  bool has_loss_ = true;
  std::unique_ptr<Op> input_;  // null: this is not the first part
  LossSpec loss_spec_;
  std::unique_ptr<Op> loss_;   // null: this is not the last part
  std::vector<Value> values_;  // the first is the input, the last the output: without cuts the images and the logits
  std::vector<Step> steps_;
  // For each step the one, itself or an earlier one, after whose backward its gradients are final.
  std::vector<int> finished_after_;
  std::vector<WeightPacking> packings_;  // the memory of packings()
  Lists lists_;
  MemoryPlan memory_;
  Memory arena_;
  const SumOverShards* sums_ = nullptr;      // of the last forward
  const ShardExchange* exchange_ = nullptr;  // likewise
  Observer observer_;
  StepWatch step_watch_;
  std::int64_t active_ = 0;
  const std::uint64_t* keys_ = nullptr;
};

}  // namespace ddp
