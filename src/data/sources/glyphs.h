// glyphs: a data set that needs no download. Digits are rendered from strokes, in several styles each, with random
// affine and elastic distortion, stroke width, contrast, clutter and noise. 28x28 greyscale, 60,000 training and 10,000
// test images. Softmax regression reaches a test accuracy of 0.74 on them (15 epochs), LeNet 0.98 after 3 epochs of
// plain SGD (learning rate 0.1, momentum 0.9, batch 256).
//
//   std::unique_ptr<Dataset> train = make_glyphs(Split::train, /*limit=*/0, /*threads=*/2);
//
// Each image is a function of (seed, split, index) alone. Only additions, multiplications, divisions and square roots
// are used, which IEEE 754 rounds correctly, so the images are bit-identical on every machine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "data/sources/dataset.h"

namespace ddp {

constexpr std::int64_t kGlyphSide = 28;
constexpr std::int64_t kGlyphPixels = kGlyphSide * kGlyphSide;
constexpr std::int64_t kGlyphTrainSize = 60000;
constexpr std::int64_t kGlyphTestSize = 10000;
// The seed of the data set; independent of the seed of a run.
constexpr std::uint64_t kGlyphSeed = 1;

// The digit of an image. Every ten indices from a multiple of ten contain each digit once.
int glyph_label(std::uint64_t seed, Split split, std::int64_t index);

// Renders an image, bright ink on a dark background, row by row from the top.
void draw_glyph(std::uint64_t seed, Split split, std::int64_t index, std::span<std::uint8_t, kGlyphPixels> pixels);

// The first `limit` images of a split (all if 0 or larger than the split), rendered by `threads` threads.
std::unique_ptr<Dataset> make_glyphs(Split split, std::int64_t limit, int threads, std::uint64_t seed = kGlyphSeed);

}  // namespace ddp
