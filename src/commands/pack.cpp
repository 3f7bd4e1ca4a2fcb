// ddp_train pack: writes any data set, with its labels and its division, into shards of WebDataset. Each rank writes shards of its
// own; a command that was stopped goes on with those that are missing.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/output.h"
#include "base/status/heartbeat.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "checkpoint/digest.h"
#include "commands/commands.h"
#include "commands/ranks.h"
#include "data/formats/encode.h"
#include "data/formats/formats.h"
#include "data/images/image_decoder.h"
#include "data/index/bad_samples.h"
#include "data/index/class_order.h"
#include "data/shards/tar_writer.h"
#include "data/shards/webdataset.h"
#include "job/report.h"
#include "train/inputs/fingerprint.h"
#include "train/inputs/inputs.h"
#include "train/inputs/job.h"
#include "train/inputs/run_data.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kPlanFile = "pack.json";

// One shard: a range of the samples of a data set.
struct ShardPart {
  std::string name;  // "train-0000.tar"
  const Dataset& data;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// A picture as the shard has it.
struct Packed {
  std::string_view suffix;
  std::string bytes;
};

Packed encoded(const RasterView& picture, const PackOptions& options, bool lossless) {
  if (lossless || options.format == PackFormat::png) return {"png", encode_png(picture)};
  return {"jpg", encode_jpeg(picture, options.quality)};
}

// The pixels of a data set that has no files.
Packed packed_pixels(const Dataset& data, std::int64_t index, const PackOptions& options) {
  const Shape& shape = data.shape();
  std::vector<std::uint8_t> planes(shape.size());
  (void)data.read(index, planes);
  std::vector<std::uint8_t> pixels(planes.size());
  interleave(planes, static_cast<std::size_t>(shape.channels), pixels);
  return encoded({pixels.data(), shape.width, shape.height, shape.channels}, options, /*lossless=*/true);
}

// Resized by Pillow's arithmetic, so that the shorter side is --pack-size.
Packed resized(const Raster& raster, const PackOptions& options) {
  const double scale = static_cast<double>(options.size) / static_cast<double>(std::min(raster.width, raster.height));
  const auto side = [&](std::int64_t pixels) {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(pixels) * std::min(1.0, scale)));
  };
  const Shape shape{3, side(raster.height), side(raster.width)};
  thread_local ExactResampler resampler;
  std::vector<std::uint8_t> planes(shape.size());
  const Region all{0, 0, static_cast<double>(raster.width), static_cast<double>(raster.height)};
  resampler.run(raster.view(), all, shape, planes);
  std::vector<std::uint8_t> pixels(planes.size());
  interleave(planes, 3, pixels);
  return encoded({pixels.data(), shape.width, shape.height, 3}, options, /*lossless=*/false);
}

// Throws BadImage. Files whose shorter side is at most --pack-size, and all for 0, are stored as they are.
Packed packed(const Dataset& data, std::int64_t index, const PackOptions& options) {
  ImageDecoder& decoder = thread_decoder();
  if (!data.load(index, decoder)) return packed_pixels(data, index, options);
  ImageSize size;
  const RegionChooser all = [&](const ImageSize& picture) {
    size = picture;
    return Region{0, 0, static_cast<double>(picture.width), static_cast<double>(picture.height)};
  };
  // Whole, so that what is damaged is found.
  const Raster& raster = decoder.decode({.choose = all, .pixels = {1, 1}, .whole = true, .verify = true});
  const std::span<const std::uint8_t> file = decoder.file();
  const std::string_view suffix = content_suffix(file);
  const bool common = suffix == "jpg" || suffix == "png" || suffix == "webp";
  const bool fits = std::min(size.width, size.height) <= options.size;
  if (!suffix.empty() && (options.size == 0 || (fits && common))) return {suffix, {file.begin(), file.end()}};
  return resized(raster, options);
}

// As many samples as fill --shard-mib, by the mean of some of them.
std::int64_t samples_per_shard(const Dataset& data, const PackOptions& options) {
  constexpr std::int64_t kProbed = 32;
  constexpr double kHeaders = 2048;  // of both members, and the label
  double bytes = 0;
  std::int64_t probed = 0;
  const std::int64_t count = std::min(kProbed, data.size());
  for (std::int64_t i = 0; i < count; ++i) {
    heartbeat();
    try {
      bytes += static_cast<double>(packed(data, i * data.size() / count, options).bytes.size()) + kHeaders;
      ++probed;
    } catch (const BadImage&) {
      // It is reported when its shard is written.
    }
  }
  if (probed == 0) return std::max<std::int64_t>(1, data.size());
  const double mebibyte = 1 << 20;
  return std::max<std::int64_t>(
      1, std::llround(static_cast<double>(options.shard_mib) * mebibyte * static_cast<double>(probed) / bytes));
}

std::vector<ShardPart> divided(const std::string& part, const Dataset& data, std::int64_t samples) {
  std::vector<ShardPart> shards;
  for (std::int64_t begin = 0; begin < data.size(); begin += samples) {
    shards.push_back(
        {fmt::format("{}-{:04}.tar", part, shards.size()), data, begin, std::min(data.size(), begin + samples)});
  }
  return shards;
}

void write_shard(const fs::path& path, const ShardPart& shard, const PackOptions& options, BadSamples& bad) {
  TarWriter tar(path, ExitCode::data);
  for (std::int64_t i = shard.begin; i < shard.end; ++i) {
    heartbeat();
    try {
      const Packed picture = packed(shard.data, i, options);
      const std::string key = fmt::format("{:08}", i);
      tar.add(fmt::format("{}.{}", key, picture.suffix), picture.bytes);
      tar.add(key + ".cls", std::to_string(shard.data.label(i)));
    } catch (const BadImage& reason) {
      bad.report(unescape_bytes(shard.data.file(i)), reason.what());
    }
  }
  tar.finish();
}

// What decides about the contents; another one is never mixed with it.
std::string plan_text(const Fingerprint& data, const PackOptions& options, const std::array<std::int64_t, 2>& samples) {
  OrderedJson plan;
  plan["pack"] = 1;
  plan["size"] = options.size;
  plan["format"] = options.format == PackFormat::png ? "png" : "jpeg";
  plan["quality"] = options.quality;
  plan["samples_per_shard"] = samples;
  for (const FingerprintPart& part : data) plan["data"][part.name] = part.value;
  return plan.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

// On rank 0: writes what does not depend on the shards.
void begin(const fs::path& folder, const std::string& plan, const std::vector<std::string>& classes) {
  std::error_code error;
  fs::create_directories(folder, error);
  const fs::path stored = folder / kPlanFile;
  if (fs::exists(stored, error)) {
    check(read_text(stored, ExitCode::data) == plan, ExitCode::data,
          "{} has shards of other images or options; give another folder with --to, or remove it",
          escape_name(folder.string()));
  } else {
    check(fs::is_empty(folder, error), ExitCode::data, "{} is not an empty folder; give another one with --to",
          escape_name(folder.string()));
    replace_file(stored, plan, ExitCode::data);
  }
  if (classes.empty()) return;
  std::string lines;
  for (const std::string& name : classes) lines += unescape_bytes(name) + "\n";
  replace_file(folder / kClassesFile, lines, ExitCode::data);
}

// Reads the shard once more, and describes it as the index of the package webdataset does (wids-shard-index-v1).
OrderedJson described(const fs::path& folder, const ShardPart& shard) {
  const fs::path path = folder / shard.name;
  const RecordIndex index = read_webdataset_shard(path, {});
  check(index.damaged.empty(), ExitCode::data, "{}: is not as it was written; remove it, and start again",
        escape_name(path.string()));
  const FileDigest digest = digest_of_file(path);
  OrderedJson text;
  text["url"] = shard.name;
  text["nsamples"] = index.records.size();
  text["filesize"] = digest.size;
  text["xxh3_128"] = digest.xxh3_128;
  return text;
}

// Collective: on rank 0 all lines of all ranks.
std::vector<std::string> gathered(Communicator& ranks, const std::string& mine) {
  std::vector<std::string> all;
  for (int rank = 0; rank < ranks.size(); ++rank)
    all.push_back(ranks.broadcast_text(rank == ranks.rank() ? mine : "", rank));
  return all;
}

// "FOLDER/train-{0000..0012}.tar"
std::string pattern_of(const fs::path& folder, const std::string& part, std::size_t shards) {
  const std::string numbers = shards > 1 ? fmt::format("{{0000..{:04}}}", shards - 1) : "0000";
  return escape_name((folder / fmt::format("{}-{}.tar", part, numbers)).string());
}

// On rank 0: the indexes of both parts, from the lines of all ranks, and what a person wants to know.
std::string write_indexes(const fs::path& folder, const std::vector<std::string>& lines) {
  std::vector<OrderedJson> found;
  for (const std::string& text : lines) {
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      found.push_back(OrderedJson::parse(text.substr(at, text.find('\n', at) - at)));
    }
  }
  std::sort(found.begin(), found.end(), [](const OrderedJson& a, const OrderedJson& b) { return a["url"] < b["url"]; });
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> patterns;
  for (const char* part : {"train", "val"}) {
    OrderedJson index;
    index["__kind__"] = "wids-shard-index-v1";
    index["wids_version"] = 1;
    index["shardlist"] = OrderedJson::array();
    for (const OrderedJson& shard : found) {
      if (!shard["url"].get<std::string>().starts_with(part)) continue;
      index["shardlist"].push_back(shard);
      samples += shard["nsamples"].get<std::uint64_t>();
      bytes += shard["filesize"].get<std::uint64_t>();
    }
    patterns.push_back(pattern_of(folder, part, index["shardlist"].size()));
    replace_file(folder / fmt::format("{}.json", part), index.dump(2) + "\n", ExitCode::data);
  }
  return fmt::format("{}: {} in {}, {}\ntrain with --dataset webdataset --data-dir '{}' --val-dir '{}'\n",
                     escape_name(folder.string()), counted(samples, "image"), counted(found.size(), "shard"),
                     format_bytes(bytes), patterns[0], patterns[1]);
}

}  // namespace

int run_pack(const MpiSession& session, const Options& given) {
  check(!given.exported.to.empty(), ExitCode::usage, "pack requires --to, the folder of the shards");
  const Ranks ranks = open_ranks(session, given);
  Communicator& communicator = *ranks.communicator;
  const Job job = agree_on_job(session, communicator, ranks.device, given, {});
  const FolderDivision division = agreed_division(session, job);
  const RunData data = together(session, [&] { return open_data(job, division); });
  const PackOptions& options = given.pack;
  const fs::path folder = given.exported.to;
  // In each shard that trains, and in each that evaluates.
  std::array<std::int64_t, 2> samples{};
  together(session, [&] {
    if (session.rank() != 0) return;
    samples = {samples_per_shard(*data.sets.train, options), samples_per_shard(*data.sets.test, options)};
    begin(folder, plan_text(data_fingerprint(data.sets, data.preprocessing.normalization), options, samples),
          data.sets.train->class_names());
  });
  communicator.broadcast(std::as_writable_bytes(std::span(samples)), 0);
  std::vector<ShardPart> shards = divided("train", *data.sets.train, samples[0]);
  for (const ShardPart& shard : divided("val", *data.sets.test, samples[1])) shards.push_back(shard);
  const std::string lines = together(session, [&] {
    BadSamples bad(given.data.max_bad_samples);
    std::string text;
    const auto ranks_here = static_cast<std::size_t>(session.size());
    for (auto i = static_cast<std::size_t>(session.rank()); i < shards.size(); i += ranks_here) {
      std::error_code error;
      if (!fs::exists(folder / shards[i].name, error)) write_shard(folder / shards[i].name, shards[i], options, bad);
      text += described(folder, shards[i]).dump() + "\n";
      if (session.rank() == 0) log_info("{} of {} shards", std::min(shards.size(), i + ranks_here), shards.size());
    }
    return text;
  });
  const std::vector<std::string> all = gathered(communicator, lines);
  together(session, [&] {
    if (session.rank() == 0) print_text("{}", write_indexes(folder, all));
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
