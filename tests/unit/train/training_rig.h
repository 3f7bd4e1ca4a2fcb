// A rank's complete training step without a session, for tests that run ranks on threads.
#pragma once

#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/host_share.h"
#include "comm/sums/device_communicator.h"
#include "data/pipeline/augmentation.h"
#include "data/pipeline/loader.h"
#include "gradients/reducer.h"
#include "model/network.h"
#include "model/zoo.h"
#include "optim/optimizer.h"
#include "options/batch.h"
#include "stand_ins/queued_backend.h"
#include "support/golden_lenet.h"
#include "train/parallel/shared_state.h"
#include "train/parallel/split_linear.h"
#include "train/step/parameter_segments.h"
#include "train/step/step.h"

namespace ddp {

// Where the images of a rig's steps come from.
enum class RigImages {
  given,      // from memory
  resident,   // the device keeps them
  read,       // from a loader
  augmented,  // from a loader that augments them
  edited      // from a loader, and the device makes the same of them
};

struct RigConfig {
  std::int64_t global_batch = 64;
  int shards = 0;  // 0: the number of ranks
  Reduction algorithm = Reduction::ring;
  bool overlap = true;
  UpdateSettings optimizer = {};
  std::string split = {};                          // linear layers that are divided among the ranks; empty: none
  std::size_t ahead = 1;                           // StepSettings::ahead
  bool record = false;                             // StepSettings::record
  std::unique_ptr<Backend> (*device)() = nullptr;  // null: as `queued` says
  bool queued = false;  // on a queued backend that works like a GPU: staged sums, recorded steps
  RigImages images = RigImages::given;
  std::size_t loaded_steps = 0;   // StageConfig::steps; 0: each step brings its batch
  std::size_t together = 1;       // StepSettings::together
  bool scales_loss = false;       // StepSettings::scales_loss, by another power of two in each step
  bool squares_by_range = false;  // StepSettings::squares_by_range
  bool keeps_results = false;     // StepSettings::keeps_results
  std::vector<int> hosts = {};    // of each rank; those of a host share the parameters. Empty: each has its own
};

// A step of a rig: on the golden samples from `first` on, `samples` over all ranks.
struct RigStep {
  std::int64_t number = 1;
  std::int64_t first = 0;
  std::int64_t samples = 0;
  double lr = 0.1;
};

class TrainingRig {
 public:
  TrainingRig(Communicator& ranks, const RigConfig& config)
      : graph(make_model("lenet", {1, 28, 28}, 10)),
        slices(divide(graph, config.split, ranks)),
        exchange(slices.any() ? std::make_unique<RankExchange>(ranks.duplicate()) : nullptr),
        batch(resolve_batch(options_of(config), ranks.size(), 1000000)),
        backend(config.device != nullptr ? config.device()
                : config.queued          ? make_queued_backend()
                                         : make_cpu_backend()),
        parameters(golden::initial_parameters(graph)),
        network(*backend, graph, network_config(config),
                plan_layouts(*backend, make_stages(graph, batch.per_shard), ChoiceMode::fixed)),
        share(share_of(ranks, config)),
        shared_parameters(share ? share->take(flat_bytes()) : Memory()),
        optimizer(*backend, segments_of(config), config.optimizer,
                  {.begin = 0, .elements = graph.flat_elements(), .shared = share != nullptr},
                  share ? share->take(state_bytes(parameters.size(), config.optimizer)) : Memory()),
        sums(make_message_communicator(ranks, backend->device(),
                                       {config.algorithm,
                                        batch.shards,
                                        {},
                                        config.hosts,
                                        share != nullptr && config.algorithm == Reduction::ring})),
        reducer(ranks, *backend, *sums, reducer_config(config)),
        images(config.images == RigImages::resident
                   ? std::make_unique<ResidentImages>(backend->device(), *golden::dataset(kSamples))
                   : nullptr),
        stage(backend->device(), {.image_bytes = 784,
                                  .max_samples = batch.per_rank,
                                  .resident = images.get(),
                                  .edited = config.images == RigImages::edited,
                                  .buffers = config.ahead,
                                  .steps = config.loaded_steps}),
        step({*backend,
              network,
              reducer,
              optimizer,
              stage,
              clock,
              nullptr,
              /*fingerprints=*/true,
              {},
              &slices,
              exchange ? &exchange->shards() : nullptr,
              nullptr,
              share.get()},
             batch, ranks.rank(),
             {.scales_loss = config.scales_loss,
              .record = config.queued || config.record,
              .ahead = config.ahead,
              .together = config.together,
              .squares_by_range = config.squares_by_range,
              .keeps_results = config.keeps_results}),
        momentum(config.optimizer.own_momentum()),
        ranks_(ranks),
        kind_(config.images),
        scales_loss_(config.scales_loss) {
    if (slices.any()) optimizer.set_sums_over_ranks(sums_in_rank_order(&ranks));
    if (!share) return;
    optimizer.set_sum_over_parts([this](const auto& add) { return share->sum(add(0)); });
    if (share->first()) std::copy(parameters.begin(), parameters.end(), weights());
    share->meet();
  }

  // Executes one step on the golden samples from `first` on, `samples` over all ranks.
  StepResult run(std::int64_t number, std::int64_t first, std::int64_t samples, double lr, Request request = {}) {
    begin(number, first, samples, lr, request);
    return step.finish();
  }
  // Only begins it. As a loader does, this keeps the batch until as many others have begun as may be in flight.
  void begin(std::int64_t number, std::int64_t first, std::int64_t samples, double lr, Request request = {}) {
    if (stage.takes_steps()) {
      step.begin_loaded(weights(), request);
      return;
    }
    const RigStep next{number, first, samples, lr};
    if (loader_) {
      step.begin(weights(), *loader_->next(), input_of(next, request));
      return;
    }
    while (given_.size() >= stage.batches_in_use()) given_.pop_front();
    given_.push_back(batch_of({next}));
    step.begin(weights(), given_.back().batch(), input_of(next, request));
  }
  // The steps that begin next, for images that a loader reads.
  void read(const std::vector<RigStep>& steps) {
    data_ = std::make_unique<AugmentedDataset>(golden::dataset(kSamples), augmentation());
    const auto source = [this, steps, next = std::size_t{0}]() mutable -> std::optional<BatchRequest> {
      if (next == steps.size()) return std::nullopt;
      requested_ = batch_of({steps[next++]});
      return BatchRequest{requested_.indices, requested_.keys};
    };
    loader_ = std::make_unique<Loader>(*data_,
                                       LoaderConfig{.max_batch = batch.per_rank,
                                                    .workers = 2,
                                                    .training = kind_ != RigImages::read,
                                                    .edits = kind_ == RigImages::edited ? &augmentation() : nullptr,
                                                    .held = stage.batches_in_use(),
                                                    .allocate = stage.pixel_allocator()},
                                       source);
  }
  // The steps that begin next, for RigConfig::loaded_steps.
  void load(const std::vector<RigStep>& steps) {
    std::vector<StepInput> inputs;
    for (const RigStep& each : steps) inputs.push_back(input_of(each));
    loaded_ = batch_of(steps);
    step.load(loaded_.batch(), inputs);
  }

  // What steps read and update.
  float* weights() { return share ? shared_parameters.at<float>(0) : parameters.data(); }

  Graph graph;
  ParameterSlices slices;
  std::unique_ptr<RankExchange> exchange;
  BatchPlan batch;
  std::unique_ptr<Backend> backend;
  std::vector<float> parameters;
  Network network;
  std::unique_ptr<HostShare> share;
  Memory shared_parameters;
  Optimizer optimizer;
  PhaseClock clock;
  std::unique_ptr<DeviceCommunicator> sums;
  Reducer reducer;
  std::unique_ptr<ResidentImages> images;
  BatchStage stage;

 private:
  // This rank's samples of some steps.
  struct RigBatch {
    golden::Samples data{0, 0};
    std::vector<std::uint32_t> indices;
    std::vector<std::uint64_t> keys;
    bool resident = false;
    Batch batch() const {
      Batch all = data.batch();
      all.indices = indices;
      all.keys = keys;
      if (resident) all.pixels = {};
      return all;
    }
  };
  // Steps in flight read these until they have ended.
  std::deque<RigBatch> given_;
  std::unique_ptr<Dataset> data_;
  RigBatch requested_;
  std::unique_ptr<Loader> loader_;

 public:
  TrainStep step;
  double momentum;  // (or beta1) of the next steps

 private:
  static constexpr std::int64_t kSamples = 700;  // that are resident or read

  static const Augmentation& augmentation() {
    static const Augmentation all{
        .crop_padding = 3, .crop_reflects = true, .flip = true, .cutout = 9, .erasing = 0.5, .fill = {77}};
    return all;
  }
  NetworkConfig network_config(const RigConfig& config) const {
    NetworkConfig result{batch.per_shard, {1, 28, 28}, {1.0F / 255.0F}, {0.0F}, 0.0F};
    if (config.images != RigImages::edited) return result;
    result.edits_reflect = augmentation().crop_reflects;
    result.fill = augmentation().fill;
    return result;
  }
  RigBatch batch_of(const std::vector<RigStep>& steps) const {
    RigBatch all;
    all.resident = images != nullptr;
    for (const RigStep& each : steps) {
      const Range mine = batch.rank_samples(ranks_.rank(), each.samples);
      for (std::int64_t i = each.first + mine.begin; i < each.first + mine.end; ++i) {
        all.indices.push_back(static_cast<std::uint32_t>(i));
        all.keys.push_back(static_cast<std::uint64_t>(i));
      }
      all.data.add(each.first + mine.begin, mine.size());
    }
    return all;
  }
  StepInput input_of(const RigStep& of, Request request = {}) const {
    const double loss_scale = scales_loss_ ? std::ldexp(1.0, static_cast<int>(of.number * 3 % 7)) : 1;
    return {{of.lr, momentum, static_cast<double>(of.number), 0, loss_scale}, of.samples, request};
  }
  static BatchOptions options_of(const RigConfig& config) {
    BatchOptions options;
    options.global_batch = config.global_batch;
    options.logical_shards = config.shards;
    return options;
  }
  static ParameterSlices divide(Graph& graph, const std::string& layers, const Communicator& ranks) {
    if (layers.empty()) return {};
    const std::vector<int> divided = layers_to_split(graph, layers, ranks.size());
    for (const int layer : divided) graph.split_linear(layer, ranks.size());
    return {graph, divided, ranks.size(), ranks.rank()};
  }
  std::size_t flat_bytes() const { return aligned_bytes(parameters.size() * sizeof(float)); }
  std::unique_ptr<HostShare> share_of(Communicator& ranks, const RigConfig& config) const {
    if (config.hosts.empty()) return nullptr;
    return HostShare::open(ranks, config.hosts, flat_bytes() + state_bytes(parameters.size(), config.optimizer));
  }
  std::vector<ParameterSegment> segments_of(const RigConfig& config) const {
    OptimizerOptions options;
    if (config.optimizer.rule == UpdateRule::muon) options.optimizer = UpdateRule::muon;
    std::vector<ParameterSegment> segments = parameter_segments(graph, options, 1);
    slices.restrict_to_held(segments);
    return share ? segments_within(segments, updated_ranges(reducer_config(config))) : segments;
  }
  ReducerConfig reducer_config(const RigConfig& config) const {
    std::vector<std::size_t> sizes;
    for (const Parameter& p : graph.parameters()) sizes.push_back(static_cast<std::size_t>(p.flat_elements()));
    ReducerConfig result;
    result.algorithm = config.algorithm;
    result.overlap = config.overlap;
    // Small, so that there are several.
    result.buckets = plan_buckets(sizes, 8 << 10, 128 << 10, slices.divided());
    result.kept = slices.whole();
    result.shards = batch.shards;
    result.elements = static_cast<std::size_t>(graph.flat_elements());
    if (share) result.part = [this](std::int64_t elements) { return share->part(elements); };
    return result;
  }

  Communicator& ranks_;
  RigImages kind_;
  bool scales_loss_;
  RigBatch loaded_;
};

}  // namespace ddp
