// glyphs: the data set that needs no download. Digits are drawn from strokes, in several styles each, and distorted at
// random: affinely, elastically, in stroke width, contrast, clutter and noise. 28x28 grey, 60,000 training and 10,000
// test images. Softmax regression reaches a test accuracy of 0.74 on them (15 epochs), LeNet 0.98 after 3 epochs of
// plain SGD (learning rate 0.1, momentum 0.9, batch 256).
//
//   std::unique_ptr<Dataset> train = make_glyphs(Split::train, /*limit=*/0, /*threads=*/2);
//
// Each image is a function of (seed, split, index) alone. Only additions, multiplications, divisions and square roots
// are used, which IEEE 754 defines to the last bit, so the images are the same on every machine.
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
// The seed of the data set itself; the seed of a run does not change it.
constexpr std::uint64_t kGlyphSeed = 1;

// The digit of an image. Every ten consecutive indices hold each digit once.
int glyph_label(std::uint64_t seed, Split split, std::int64_t index);

// Draws an image: ink bright on dark ground, row by row from the top.
void draw_glyph(std::uint64_t seed, Split split, std::int64_t index, std::span<std::uint8_t, kGlyphPixels> pixels);

// The first `limit` images of a split (0, or more than there are: all), drawn by `threads` threads.
std::unique_ptr<Dataset> make_glyphs(Split split, std::int64_t limit, int threads, std::uint64_t seed = kGlyphSeed);

}  // namespace ddp
