// Text for users: sizes, counts, durations, patterns, and the known name nearest to a misspelled one.
//
//   format_bytes(1536);                                                 // "1.5 KiB"
//   nearest("lenett", std::vector<std::string>{"lenet", "resnet18"});   // "lenet"
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ddp {

// 1536 -> "1.5 KiB"; below 1 KiB in whole bytes.
std::string format_bytes(std::uint64_t bytes);
// 1234567 -> "1,234,567".
std::string format_count(std::uint64_t count);
// 1, "core" -> "1 core"; 2, "core" -> "2 cores".
std::string counted(std::uint64_t count, std::string_view noun);
// 0.0123 -> "12.3 ms"; 75 -> "1:15"; 3675 -> "1:01:15".
std::string format_duration(double seconds);

// Insertions, deletions and replacements of one character, and swaps of two neighbours (optimal string alignment distance).
std::size_t edit_distance(std::string_view a, std::string_view b);
// The candidate with the smallest edit distance to `word` in lower case, or "" if none is close enough.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
// ASCII letters in lower case; other bytes stay.
std::string lower_case(std::string text);
// Without blanks, tabs and line ends at both ends.
std::string trimmed(std::string_view text);

// The candidates joined for an error message: "a, b, c".
std::string join(std::span<const std::string> words, std::string_view separator = ", ");
// Whether `word`, which is not empty, is one of the words of `list`, which are separated by blanks.
bool has_word(std::string_view list, std::string_view word);

// Whether the whole of `text` matches: * stands for any text, also none, and ? for one character.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace ddp
