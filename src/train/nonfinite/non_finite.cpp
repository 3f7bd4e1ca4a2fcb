#include "train/nonfinite/non_finite.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/text/text.h"
#include "checkpoint/safetensors.h"
#include "train/inputs/fingerprint.h"
#include "train/nonfinite/trace.h"

namespace ddp {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{1} << 30U;

// What a rank has found in its shards.
struct Found {
  std::int64_t row = std::numeric_limits<std::int64_t>::max();  // the place of the value in the order of computation
  std::string where;
  std::vector<std::uint32_t> samples;  // by their numbers in the data set
  double loss_sum = 0;                 // over its samples
};

// For training, which the network of a run with a pipeline is not.
std::unique_ptr<Network> whole_network(const SearchedStep& step) {
  return std::make_unique<Network>(step.backend, step.graph, step.config, step.layouts);
}

// In a pipeline the first stage of each replica has the images, and computes all layers.
Found find_here(const SearchedStep& step, const BatchStage& stage, const Batch& batch, std::int64_t samples) {
  if (!step.place.first()) return {};
  Trace all;
  const std::unique_ptr<Network> whole = step.place.stages > 1 ? whole_network(step) : nullptr;
  Network& network = whole ? *whole : *step.images.network;
  const int share = step.place.replica;
  const Range shards = step.plan.shards_of(share);
  const Range mine = step.plan.rank_samples(share, samples);
  for (std::int64_t shard = shards.begin; shard < shards.end; ++shard) {
    const Range range = step.plan.shard_samples(shard, samples);
    if (range.size() == 0) continue;
    const std::int64_t first = range.begin - mine.begin;
    add_shard(all,
              trace_shard(step.backend, network, step.parameters, step.statistics, stage.samples(first, range.size()),
                          1.0F / static_cast<float>(samples)),
              first);
  }
  Found found;
  found.loss_sum = all.loss_sum;
  const TraceRow* row = first_not_finite(all.rows);
  if (row == nullptr) return found;
  found.row = row - all.rows.data();
  found.where = row->where;
  for (const std::int64_t sample : row->samples) {
    found.samples.push_back(batch.indices[static_cast<std::size_t>(sample)]);
  }
  return found;
}

// "('conv1.weight' holds non-finite values on rank 1)", or nothing.
std::string broken_text(const std::vector<Json>& all) {
  std::string name;
  std::vector<int> where;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto broken = all[rank]["broken"].get<std::string>();
    if (broken.empty()) continue;
    if (name.empty()) name = broken;
    if (name == broken) where.push_back(static_cast<int>(rank));
  }
  if (name.empty()) return "";
  const std::string place = where.size() == all.size() ? "" : " on " + rank_list(where);
  return fmt::format(" ('{}' holds non-finite values{})", name, place);
}

// The findings of all ranks as one clause; `broken`: this rank's first parameter with non-finite values, or nothing.
std::string joint_text(Communicator& ranks, const Found& mine, const std::string& broken, const Dataset& data) {
  const std::string own =
      Json{{"row", mine.row}, {"where", mine.where}, {"samples", mine.samples}, {"broken", broken}}.dump();
  std::vector<Json> all;
  for (const std::string& text : ranks.all_gather_text(own, "the search for non-finite values")) {
    all.push_back(Json::parse(text));
  }
  const auto before = [](const Json& a, const Json& b) {
    return a["row"].get<std::int64_t>() < b["row"].get<std::int64_t>();
  };
  const Json first = *std::min_element(all.begin(), all.end(), before);
  if (first["where"].get<std::string>().empty()) {
    return "every value of every shard is finite, so their sum over the batch overflows";
  }
  std::vector<int> where;
  std::vector<std::uint32_t> samples;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank]["row"] != first["row"]) continue;
    where.push_back(static_cast<int>(rank));
    for (const Json& sample : all[rank]["samples"]) samples.push_back(sample.get<std::uint32_t>());
  }
  std::sort(samples.begin(), samples.end());
  return fmt::format("first in {} on {}{}{}", first["where"].get<std::string>(), rank_list(where),
                     samples.empty() ? "" : ", " + sample_list(samples, [&](auto index) { return data.file(index); }),
                     broken_text(all));
}

// The values of all ranks that read images, behind one another, on all ranks.
template <class T>
std::vector<T> gathered(const SearchedStep& step, Communicator& ranks, std::span<const T> mine, std::int64_t samples,
                        std::size_t each) {
  std::vector<T> all(static_cast<std::size_t>(samples) * each);
  for (int share = 0; share < step.place.replicas; ++share) {
    const int rank = step.place.rank_of(share, 0);
    const Range range = step.plan.rank_samples(share, samples);
    const std::span<T> part = std::span(all).subspan(static_cast<std::size_t>(range.begin) * each,
                                                     static_cast<std::size_t>(range.size()) * each);
    if (rank == ranks.rank()) std::copy(mine.begin(), mine.end(), part.begin());
    if (!part.empty()) ranks.broadcast(std::as_writable_bytes(part), rank);
  }
  return all;
}

void gather_batch(const SearchedStep& step, Communicator& ranks, const Batch& batch, std::int64_t samples,
                  NonFinite& found) {
  const Dataset& data = *step.images.data;
  found.image = data.shape();
  const std::size_t image = data.shape().size();
  std::vector<std::uint8_t> read;
  std::span<const std::uint8_t> pixels = batch.pixels;
  if ((pixels.empty() || !batch.edits.empty()) && step.place.first()) {  // the device keeps or edits the images
    read.resize(static_cast<std::size_t>(batch.count) * image);
    for (std::size_t i = 0; i < static_cast<std::size_t>(batch.count); ++i) {
      data.read_training(batch.indices[i], batch.keys[i], std::span(read).subspan(i * image, image));
    }
    pixels = read;
  }
  found.pixels = gathered(step, ranks, pixels, samples, image);
  found.indices = gathered(step, ranks, batch.indices, samples, 1);
  found.labels = gathered(step, ranks, batch.labels, samples, 1);
  found.keys = gathered(step, ranks, batch.keys, samples, 1);
  if (step.mixed) {
    found.other_labels = gathered(step, ranks, batch.other_labels, samples, 1);
    found.label_weights = gathered(step, ranks, batch.label_weights, samples, 1);
  }
}

}  // namespace

std::string sample_list(std::span<const std::uint32_t> indices,
                        const std::function<std::string(std::uint32_t)>& file_of) {
  constexpr std::size_t kShown = 8;
  const std::size_t shown = std::min(kShown, indices.size());
  std::string text = indices.size() == 1 ? "sample " : "samples ";
  for (std::size_t i = 0; i < shown; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", indices[i]);
    if (const std::string file = file_of ? file_of(indices[i]) : ""; !file.empty()) text += fmt::format(" ({})", file);
  }
  return indices.size() == shown ? text : fmt::format("{} and {} more", text, indices.size() - shown);
}

NonFinite find_non_finite(const SearchedStep& step, Communicator& ranks, BatchStage& stage, const Batch& batch,
                          std::int64_t samples) {
  NonFinite found;
  const Dataset& data = *step.images.data;
  if (step.place.first()) {
    stage.set(batch, 0);
    stage.enqueue();
  }
  const Found here = find_here(step, stage, batch, samples);
  found.text = joint_text(ranks, here, first_not_finite(step.named_parameters), data);
  double loss_sum = here.loss_sum;
  ranks.all_reduce(std::span(&loss_sum, 1), ReduceOp::sum);
  found.loss = loss_sum / static_cast<double>(samples);
  found.weights_hash = tensors_part("weights", step.named_weights).value;
  for (int shard = 0; shard < step.plan.shards; ++shard) {
    found.shards.push_back(step.plan.shard_samples(shard, samples).size());
  }
  found.shard_batch = step.plan.per_shard;
  found.scale = step.pixels.scale;
  found.shift = step.pixels.shift;
  gather_batch(step, ranks, batch, samples, found);
  for (const std::uint32_t index : found.indices) {
    if (std::string file = data.file(index); !file.empty()) found.files.push_back(std::move(file));
  }
  return found;
}

fs::path non_finite_folder(const fs::path& run, std::int64_t step) {
  std::error_code error;
  const fs::path folder = run / fmt::format("nonfinite-{}", step);
  fs::path path = folder;
  for (int n = 2; fs::exists(path, error); ++n) {
    path = folder;
    path += fmt::format("-{}", n);
  }
  return path;
}

void write_non_finite(const fs::path& folder, const NonFinite& found, const TrainingState& state,
                      std::span<const TensorView> weights, const std::string& onnx) {
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, ExitCode::checkpoint, "cannot create {}: {}", folder.string(), error.message());
  Json json;
  json["step"] = found.step;
  json["epoch"] = found.epoch;
  json["seed"] = state.seed;
  // JSON has no NaN.
  json["lr"] = fmt::format("{}", found.lr);
  json["loss"] = fmt::format("{}", found.loss);
  json["first"] = found.text;
  json["weights"] = found.weights_hash;
  json["shards"] = found.shards;
  json["shard_batch"] = found.shard_batch;
  json["scale"] = found.scale;
  json["shift"] = found.shift;
  json["image"] = {found.image.channels, found.image.height, found.image.width};
  json["samples"] = found.indices;
  if (!found.files.empty()) json["files"] = found.files;
  json["labels"] = found.labels;
  json["keys"] = found.keys;
  json["other_labels"] = found.other_labels;
  json["label_weights"] = found.label_weights;
  replace_file(folder / "pixels.bin",
               {static_cast<const char*>(static_cast<const void*>(found.pixels.data())), found.pixels.size()},
               ExitCode::checkpoint);
  (void)write_safetensors(folder / "weights.safetensors", weights, {{"format", "pt"}});
  replace_file(folder / "state.json", to_json(state), ExitCode::checkpoint);
  replace_file(folder / "config.cfg", state.config, ExitCode::checkpoint);
  if (!onnx.empty()) replace_file(folder / "model.onnx", onnx, ExitCode::checkpoint);
  // Last: a folder with this file is complete.
  replace_file(folder / "batch.json", json.dump(1) + "\n", ExitCode::checkpoint);
}

NonFinite read_non_finite(const fs::path& folder) {
  std::error_code error;
  check(fs::is_regular_file(folder / "batch.json", error), ExitCode::checkpoint,
        "{}: no batch.json; give a folder that a run wrote about a step, such as RUN/nonfinite-7", folder.string());
  NonFinite found;
  try {
    const Json json = Json::parse(read_text(folder / "batch.json", ExitCode::checkpoint, kMostBytes));
    json.at("step").get_to(found.step);
    json.at("epoch").get_to(found.epoch);
    const Json& lr = json.at("lr");  // a number in folders of older versions
    found.lr = lr.is_string() ? std::stod(lr.get<std::string>()) : lr.get<double>();
    found.loss = std::stod(json.at("loss").get<std::string>());
    json.at("first").get_to(found.text);
    json.at("weights").get_to(found.weights_hash);
    json.at("shards").get_to(found.shards);
    json.at("shard_batch").get_to(found.shard_batch);
    json.at("scale").get_to(found.scale);
    json.at("shift").get_to(found.shift);
    if (json.contains("image")) {
      const auto image = json.at("image").get<std::array<std::int64_t, 3>>();
      found.image = {image[0], image[1], image[2]};
    }
    json.at("samples").get_to(found.indices);
    if (json.contains("files")) json.at("files").get_to(found.files);
    json.at("labels").get_to(found.labels);
    json.at("keys").get_to(found.keys);
    json.at("other_labels").get_to(found.other_labels);
    json.at("label_weights").get_to(found.label_weights);
  } catch (const std::exception& damaged) {
    throw Error(ExitCode::checkpoint, fmt::format("{}: damaged ({}); use an intact copy of the folder",
                                                  (folder / "batch.json").string(), one_line(damaged.what())));
  }
  const std::string pixels = read_text(folder / "pixels.bin", ExitCode::checkpoint, kMostBytes);
  found.pixels.assign(pixels.begin(), pixels.end());
  const std::size_t samples = found.indices.size();
  std::int64_t in_shards = 0;
  bool fits = found.shard_batch > 0 && samples > 0;
  for (const std::int64_t shard : found.shards) {
    fits = fits && shard >= 0 && shard <= found.shard_batch;
    in_shards += fits ? shard : 0;
  }
  const auto as_many = [samples](std::size_t count) { return count == 0 || count == samples; };
  check(fits && in_shards == static_cast<std::int64_t>(samples) && found.labels.size() == samples &&
            found.keys.size() == samples && as_many(found.files.size()) && as_many(found.other_labels.size()) &&
            found.other_labels.size() == found.label_weights.size() && found.scale.size() == found.shift.size() &&
            found.pixels.size() % samples == 0,
        ExitCode::checkpoint, "{}: its files do not belong together; use an intact copy of the folder",
        folder.string());
  return found;
}

}  // namespace ddp
