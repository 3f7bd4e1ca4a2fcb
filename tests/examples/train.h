// Names that the examples in the headers of train use.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/pipeline/loader.h"
#include "optim/schedule.h"
#include "run_folder/run_folder.h"
#include "train/evaluation/evaluator.h"
#include "train/inputs/init_from.h"
#include "train/inputs/match_weights.h"
#include "train/inputs/resume.h"
#include "train/loop/prepared_run.h"
#include "train/loop/trainer.h"
#include "train/parallel/balance.h"
#include "train/parallel/pipeline_run.h"
#include "train/plan/choose_plan.h"
#include "train/step/step.h"

namespace ddp::train_examples {

extern Backend& backend;
extern Network& network;
extern Reducer& reducer;
extern Optimizer& optimizer;
extern BatchStage& stage;
extern PhaseClock& clock;
extern Communicator& ranks;
extern Signals* signals;
extern RunOutput* rank0_output;
extern const Device device;
extern const Dataset& test;
extern const DataSets data;
extern PreparedRun& prepared;
extern const Job job;
extern const Inputs inputs;
extern std::optional<ImportedModel> imported;
extern const Measured measured;
extern const Plan step_plan;
extern const PipelinePlace place;
extern const PipelinePlan pipeline_plan;
extern const Parallelism parallelism;
extern const ReducerConfig sum_settings;
extern const State& trained;
extern HostMirror* host_parameters;
extern DeviceCommunicator& sums;
extern const SearchedStep& broken_step;
extern const Schedule schedule;
extern const Request request;
extern const Batch batch, next_batch;
extern Batch loaded;
extern PipelineRank& pipeline;
extern const LinkSpeed* link;
extern const std::function<std::int64_t(std::int64_t)> samples_of_shard;
extern const PipelineRun::Pass forward, backward;
extern const std::span<double> message;
extern const BatchPlan plan;
extern const LayoutPlan layout_plan;
extern const Graph graph, read_back;
extern const NetworkConfig network_config;
extern const ResidentImages* resident;
extern const ModelState state;
extern const std::vector<FileTensor> in_file;
extern const std::vector<NetworkTensor> in_network;
extern const TrainedOn this_run;
extern const LossOutput results;
extern const std::vector<Stage> stages;
extern const std::optional<ResumePoint> resumed;
extern std::unique_ptr<RunFolder> folder;
extern const std::int64_t first, count, samples, last_step, max_samples;
extern const std::size_t parameter_bytes, image_bytes;
extern const int shard;
extern const double loss;
extern const float global_batch;
extern TrainingRun& run;
extern const PlanRequest plan_request;
extern const TrainingImages images;
extern const StepResult result;
extern const std::string onnx;
extern float* parameters;
extern ShardStatistics& statistics;
extern const std::span<float> weights, running_statistics;
extern const std::vector<float> scale, shift;
extern const Shape image;
extern const std::span<std::uint8_t> pixels;

}  // namespace ddp::train_examples
