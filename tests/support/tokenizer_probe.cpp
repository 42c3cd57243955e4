// Encodes texts with a vocabulary and writes what the pytest oracles and the timing script compare: the ids.
//
// usage: tokenizer_probe ids VOCAB cased|uncased RECORDS OUT
//        tokenizer_probe time VOCAB cased|uncased FILE [REPEATS]
// RECORDS holds texts, each after its number of bytes as a little-endian uint64. OUT gets for each text the number of
// its ids and then the ids, all int32. `time` encodes every line of FILE, REPEATS times, each time with an empty cache,
// and prints the seconds of CPU time as a JSON list, and the number of ids to stderr.
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include "data/tokenizer.h"

namespace {

using tempo::data::make_wordpiece;
using tempo::data::Tokenizer;
using tempo::data::Vocabulary;

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  TORCH_CHECK_VALUE(stream, path, ": cannot be read");
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

void write_ids(Tokenizer& tokenizer, const std::string& records, const std::string& out) {
  std::vector<std::int32_t> written;
  for (std::size_t at = 0; at < records.size();) {
    std::uint64_t num_bytes = 0;
    TORCH_CHECK_VALUE(records.size() - at >= sizeof(num_bytes), "the last record is cut off");
    std::memcpy(&num_bytes, records.data() + at, sizeof(num_bytes));
    at += sizeof(num_bytes);
    TORCH_CHECK_VALUE(records.size() - at >= num_bytes, "the last record is cut off");
    const std::size_t head = written.size();
    written.push_back(0);
    tokenizer.encode(std::string_view(records).substr(at, num_bytes), written);
    written[head] = static_cast<std::int32_t>(written.size() - head - 1);
    at += num_bytes;
  }
  std::ofstream stream(out, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(written.data()),
               static_cast<std::streamsize>(written.size() * sizeof(written[0])));
  TORCH_CHECK_VALUE(stream.flush(), out, ": cannot be written");
}

double cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void print_times(const Tokenizer& tokenizer, std::string_view text, int repeats) {
  std::vector<std::int32_t> ids;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const std::unique_ptr<Tokenizer> fresh = tokenizer.clone();
    ids.clear();
    const double begin = cpu_seconds();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
      fresh->encode(text.substr(at, end - at), ids);
      at = end;
    }
    std::cout << (repeat == 0 ? "[" : ", ") << cpu_seconds() - begin;
  }
  std::cout << "]\n";
  std::cerr << ids.size() << " ids\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if ((mode != "ids" || argc != 6) && (mode != "time" || argc < 5)) {
    std::cerr << "usage: tokenizer_probe ids VOCAB cased|uncased RECORDS OUT\n"
                 "       tokenizer_probe time VOCAB cased|uncased FILE [REPEATS]\n";
    return 2;
  }
  const bool lowercase = std::string(argv[3]) == "uncased";
  const auto vocabulary = std::make_shared<const Vocabulary>(Vocabulary::read(argv[2]));
  const std::unique_ptr<Tokenizer> tokenizer = make_wordpiece(vocabulary, lowercase);
  if (mode == "ids") {
    write_ids(*tokenizer, read_file(argv[4]), argv[5]);
  } else {
    print_times(*tokenizer, read_file(argv[4]), argc > 5 ? std::stoi(argv[5]) : 1);
  }
  return 0;
}
