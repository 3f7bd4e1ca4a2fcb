// Compares decoding and augmenting JPEG files on one core with libjpeg-turbo alone: the same files, regions and scaled
// decoding, alternating. bench/decode builds and runs it.
//
//   ddp_bench_decode FOLDER [REPEATS]   FOLDER: searched for .jpg files
//
// The last line is the ratio of the speeds: 0.85 means that resizing, flipping and everything else take 15%.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "data/images/image_decoder.h"
#include "data/pipeline/augmentation.h"
#include "data/pipeline/sample_key.h"

// Requires <cstdio>.
#include <jpeglib.h>

namespace {

using ddp::ExitCode;

constexpr ddp::Shape kShape = {3, 224, 224};
constexpr std::size_t kMaxFiles = 400;

using Bytes = std::vector<std::uint8_t>;

std::vector<Bytes> read_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".jpg") paths.push_back(entry.path());
  }
  ddp::check(!paths.empty(), ExitCode::data, "{}: has no .jpg files; pass a folder of images", folder.string());
  std::sort(paths.begin(), paths.end());
  // Evenly from all classes.
  std::vector<Bytes> files;
  const std::size_t step = std::max<std::size_t>(1, paths.size() / kMaxFiles);
  for (std::size_t i = 0; i < paths.size() && files.size() < kMaxFiles; i += step) {
    const std::string text = ddp::read_text(paths[i], ExitCode::data);
    files.emplace_back(text.begin(), text.end());
  }
  return files;
}

// Plain libjpeg-turbo as in its manual. An error ends the program, as with the default error manager.
void decode_alone(const Bytes& file, const ddp::RegionChooser& choose, Bytes& pixels) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), file.size());
  jpeg_read_header(&info, TRUE);
  const ddp::Region region = choose({info.image_width, info.image_height});
  const std::int64_t reduction = ddp::reduction_of(region, {kShape.width, kShape.height});
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(reduction);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  auto left = static_cast<JDIMENSION>(region.x) / static_cast<JDIMENSION>(reduction);
  auto width = std::min(static_cast<JDIMENSION>(region.width) / static_cast<JDIMENSION>(reduction) + 1,
                        info.output_width - left);
  if (width < info.output_width) jpeg_crop_scanline(&info, &left, &width);
  const auto top = static_cast<JDIMENSION>(region.y) / static_cast<JDIMENSION>(reduction);
  const auto height = std::min(static_cast<JDIMENSION>(region.height) / static_cast<JDIMENSION>(reduction) + 1,
                               info.output_height - top);
  if (top > 0) jpeg_skip_scanlines(&info, top);
  pixels.resize(std::size_t{3} * info.output_width * height);
  for (JDIMENSION row = 0; row < height; ++row) {
    JSAMPROW to = pixels.data() + std::size_t{3} * info.output_width * row;
    jpeg_read_scanlines(&info, &to, 1);
  }
  jpeg_abort_decompress(&info);
  jpeg_destroy_decompress(&info);
}

double seconds_of(const std::function<void()>& work) {
  const double begin = ddp::now();
  work();
  return ddp::now() - begin;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

ddp::RegionChooser region_for(std::uint64_t key) {
  return [key](const ddp::ImageSize& size) {
    ddp::Region region = ddp::random_region(size, key);
    region.mirrored = (key & 1U) != 0;
    return region;
  };
}

void run(const std::filesystem::path& folder, int repeats) {
  const std::vector<Bytes> files = read_files(folder);
  Bytes alone;
  Bytes pixels(kShape.size());
  ddp::ImageDecoder& decoder = ddp::thread_decoder();
  std::uint64_t bytes = 0;
  for (const Bytes& file : files) bytes += file.size();
  fmt::print("{} files, {:.0f} kB on average, cut as --random-resized-crop --random-flip does, to 224x224\n",
             files.size(), static_cast<double>(bytes) / 1000 / static_cast<double>(files.size()));
  std::array<std::vector<double>, 3> times;
  std::vector<double> ratios;
  // The first round warms up caches and is not counted.
  for (int round = 0; round <= repeats; ++round) {
    const auto key_of = [round](std::size_t i) { return ddp::sample_key(1, round, static_cast<std::uint32_t>(i)); };
    const auto augment = [&](std::size_t i, bool jitter) {
      decoder.load(files[i]);
      decoder.decode(region_for(key_of(i)), kShape, pixels);
      if (jitter) ddp::apply_jitter(ddp::draw_jitter({0.4, 0.4, 0.4}, key_of(i)), kShape, pixels);
    };
    // Alternates by file, with the order reversed for every other file, so that disturbances affect all sides equally.
    std::array<double, 3> seconds{};
    for (std::size_t i = 0; i < files.size(); ++i) {
      for (std::size_t place = 0; place < seconds.size(); ++place) {
        const std::size_t which = i % 2 == 0 ? place : seconds.size() - 1 - place;
        seconds.at(which) += seconds_of([&] {
          if (which == 0) decode_alone(files[i], region_for(key_of(i)), alone);
          if (which != 0) augment(i, which == 2);
        });
      }
    }
    if (round == 0) continue;
    for (std::size_t which = 0; which < times.size(); ++which) times.at(which).push_back(seconds.at(which));
    ratios.push_back(seconds[0] / seconds[1]);
  }
  const char* names[] = {"libjpeg-turbo alone", "decoded and augmented", "with --color-jitter too"};
  for (std::size_t which = 0; which < times.size(); ++which) {
    const double each = median(times.at(which)) / static_cast<double>(files.size());
    fmt::print("{:<24} {:>6.0f} images/s, {:.3f} ms each\n", names[which], 1 / each, 1000 * each);
  }
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  fmt::print("ratios of {} rounds from {:.3f} to {:.3f}\nratio {:.3f}\n", ratios.size(), *least, *most, median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: ddp_bench_decode FOLDER [REPEATS]\n");
    return static_cast<int>(ExitCode::usage);
  }
  try {
    run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 7);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench/decode: {}\n", error.what());
    return static_cast<int>(ExitCode::data);
  }
  return 0;
}
