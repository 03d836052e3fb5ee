#include "plumbline/io/ggml_types.h"

#include <iterator>

namespace plumbline {
namespace {

// Indexed by ggml's number. 4, 5, 31 to 33 and 36 to 38 are types that ggml no longer has.
constexpr GgmlType kTypes[] = {
    {"F32", DType::kF32},         {"F16", DType::kF16},         {"Q4_0", DType::kQ4_0},
    {"Q4_1", DType::kQ4_1},       {"Q4_2", std::nullopt},       {"Q4_3", std::nullopt},
    {"Q5_0", DType::kQ5_0},       {"Q5_1", DType::kQ5_1},       {"Q8_0", DType::kQ8_0},
    {"Q8_1", std::nullopt},       {"Q2_K", std::nullopt},       {"Q3_K", std::nullopt},
    {"Q4_K", DType::kQ4_K},       {"Q5_K", DType::kQ5_K},       {"Q6_K", DType::kQ6_K},
    {"Q8_K", std::nullopt},       {"IQ2_XXS", std::nullopt},    {"IQ2_XS", std::nullopt},
    {"IQ3_XXS", std::nullopt},    {"IQ1_S", std::nullopt},      {"IQ4_NL", std::nullopt},
    {"IQ3_S", std::nullopt},      {"IQ2_S", std::nullopt},      {"IQ4_XS", std::nullopt},
    {"I8", std::nullopt},         {"I16", std::nullopt},        {"I32", DType::kI32},
    {"I64", DType::kI64},         {"F64", std::nullopt},        {"IQ1_M", std::nullopt},
    {"BF16", DType::kBF16},       {"Q4_0_4_4", std::nullopt},   {"Q4_0_4_8", std::nullopt},
    {"Q4_0_8_8", std::nullopt},   {"TQ1_0", std::nullopt},      {"TQ2_0", std::nullopt},
    {"IQ4_NL_4_4", std::nullopt}, {"IQ4_NL_4_8", std::nullopt}, {"IQ4_NL_8_8", std::nullopt},
    {"MXFP4", std::nullopt},      {"NVFP4", std::nullopt},      {"Q1_0", std::nullopt},
};

}  // namespace

const GgmlType* FindGgmlType(uint32_t number) {
  return number < std::size(kTypes) ? &kTypes[number] : nullptr;
}

}  // namespace plumbline
