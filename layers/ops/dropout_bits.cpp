#include "layers/ops/dropout_bits.h"

#include "layers/ops/cpu_loops.h"

#if defined(TEMPO_HAS_VERSIONS)
#include <immintrin.h>
#endif

// Philox is most of dropout's time, and compilers make 32-bit products with their upper halves four times slower than they are:
// so the two wider versions are written out. They keep the four words of a block in 64-bit lanes, whose upper halves hold rubbish
// that no product reads; a product is then one instruction. One loop turn draws as many blocks as a register has lanes.

namespace tempo::layers {
namespace {

#if defined(TEMPO_HAS_VERSIONS)
__attribute__((target("arch=x86-64-v4"))) void draw_blocks_v4(const math::DropoutKey& key, std::uint32_t head,
                                                              std::uint32_t position, std::uint32_t example,
                                                              std::uint32_t num_blocks, std::uint32_t* words) {
  const __m512i multiplier0 = _mm512_set1_epi64(math::kPhiloxMultiplier0);
  const __m512i multiplier1 = _mm512_set1_epi64(math::kPhiloxMultiplier1);
  const __m512i first_half = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second_half = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (std::uint32_t block = 0; block < num_blocks; block += 8) {
    __m512i word0 =
        _mm512_or_si512(_mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(block)),
                        _mm512_set1_epi64(key.site << 20));
    __m512i word1 = _mm512_set1_epi64(position | head << 20);
    __m512i word2 = _mm512_set1_epi64(example);
    __m512i word3 = _mm512_set1_epi64(key.step);
    auto key0 = static_cast<std::uint32_t>(key.seed);
    auto key1 = static_cast<std::uint32_t>(key.seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < math::kPhiloxRounds; ++round) {
      const __m512i product0 = _mm512_mul_epu32(word0, multiplier0);
      const __m512i product1 = _mm512_mul_epu32(word2, multiplier1);
      constexpr int kXor = 0x96;
      word0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), word1, _mm512_set1_epi64(key0), kXor);
      word2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), word3, _mm512_set1_epi64(key1), kXor);
      word1 = product1;
      word3 = product0;
      key0 += math::kPhiloxKeyStep0;
      key1 += math::kPhiloxKeyStep1;
    }
    const __m512i pair01 = _mm512_mask_blend_epi32(0xAAAA, word0, _mm512_slli_epi64(word1, 32));
    const __m512i pair23 = _mm512_mask_blend_epi32(0xAAAA, word2, _mm512_slli_epi64(word3, 32));
    const __m512i even = _mm512_unpacklo_epi64(pair01, pair23);  // blocks 0, 2, 4, 6
    const __m512i odd = _mm512_unpackhi_epi64(pair01, pair23);
    _mm512_storeu_si512(words + 4 * block, _mm512_permutex2var_epi64(even, first_half, odd));
    _mm512_storeu_si512(words + 4 * block + 16, _mm512_permutex2var_epi64(even, second_half, odd));
  }
}

__attribute__((target("arch=x86-64-v3"))) void draw_blocks_v3(const math::DropoutKey& key, std::uint32_t head,
                                                              std::uint32_t position, std::uint32_t example,
                                                              std::uint32_t num_blocks, std::uint32_t* words) {
  const __m256i multiplier0 = _mm256_set1_epi64x(math::kPhiloxMultiplier0);
  const __m256i multiplier1 = _mm256_set1_epi64x(math::kPhiloxMultiplier1);
  for (std::uint32_t block = 0; block < num_blocks; block += 4) {
    __m256i word0 = _mm256_or_si256(_mm256_add_epi64(_mm256_setr_epi64x(0, 1, 2, 3), _mm256_set1_epi64x(block)),
                                    _mm256_set1_epi64x(key.site << 20));
    __m256i word1 = _mm256_set1_epi64x(position | head << 20);
    __m256i word2 = _mm256_set1_epi64x(example);
    __m256i word3 = _mm256_set1_epi64x(key.step);
    auto key0 = static_cast<std::uint32_t>(key.seed);
    auto key1 = static_cast<std::uint32_t>(key.seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < math::kPhiloxRounds; ++round) {
      const __m256i product0 = _mm256_mul_epu32(word0, multiplier0);
      const __m256i product1 = _mm256_mul_epu32(word2, multiplier1);
      const __m256i mixed1 = _mm256_xor_si256(word1, _mm256_set1_epi64x(key0));
      const __m256i mixed3 = _mm256_xor_si256(word3, _mm256_set1_epi64x(key1));
      word0 = _mm256_xor_si256(_mm256_srli_epi64(product1, 32), mixed1);
      word2 = _mm256_xor_si256(_mm256_srli_epi64(product0, 32), mixed3);
      word1 = product1;
      word3 = product0;
      key0 += math::kPhiloxKeyStep0;
      key1 += math::kPhiloxKeyStep1;
    }
    const __m256i pair01 = _mm256_blend_epi32(word0, _mm256_slli_epi64(word1, 32), 0xAA);
    const __m256i pair23 = _mm256_blend_epi32(word2, _mm256_slli_epi64(word3, 32), 0xAA);
    const __m256i even = _mm256_unpacklo_epi64(pair01, pair23);  // blocks 0 and 2
    const __m256i odd = _mm256_unpackhi_epi64(pair01, pair23);
    auto* to = reinterpret_cast<__m256i*>(words + 4 * block);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
}

#endif

void draw_blocks_anywhere(const math::DropoutKey& key, std::uint32_t head, std::uint32_t position,
                          std::uint32_t example, std::uint32_t num_blocks, std::uint32_t* words) {
  for (std::uint32_t block = 0; block < num_blocks; ++block) {
    const math::PhiloxWords four = math::dropout_words(key, block, head, position, example);
    for (int w = 0; w < 4; ++w) words[4 * block + w] = four.word[w];
  }
}

}  // namespace

std::vector<DrawBlocks> draw_versions() {
  std::vector<DrawBlocks> versions;
#if defined(TEMPO_HAS_VERSIONS)
  if (__builtin_cpu_supports("x86-64-v4")) versions.push_back(draw_blocks_v4);
  if (__builtin_cpu_supports("x86-64-v3")) versions.push_back(draw_blocks_v3);
#endif
  versions.push_back(draw_blocks_anywhere);
  return versions;
}

void dropout_row_bits(const math::DropoutKey& key, std::uint32_t head, std::uint32_t position, std::uint32_t example,
                      std::int64_t size, std::uint16_t* bits) {
  static const DrawBlocks draw = draw_versions().front();
  // On a little-endian machine the words lie in memory as the lanes are numbered: low half first.
  draw(key, head, position, example, static_cast<std::uint32_t>(room_for_bits(size) / math::kDropoutBlock),
       reinterpret_cast<std::uint32_t*>(bits));
}

TEMPO_VECTORISED void write_kept(const std::uint16_t* bits, std::uint32_t threshold, std::int64_t size,
                                 std::uint8_t* mask) {
  for (std::int64_t i = 0; i < size; ++i) mask[i] = bits[i] < threshold;
}

}  // namespace tempo::layers
