// The tables that a decoder declares (nn/decoder_declaration.h), made as it is loaded.
#pragma once

#include <string>
#include <vector>

#include "plumbline/models/model_source.h"
#include "plumbline/nn/decoder_declaration.h"

namespace plumbline {

// Every constant of `declares`, in order. Refuses tensors and tables of another shape.
Result<std::vector<std::vector<float>>> LoadConstants(const ModelSource& source,
                                                      const DecoderDeclaration& declares);

// The tensors that they are made from.
std::vector<std::string> ConstantTensors(const DecoderDeclaration& declares);

}  // namespace plumbline
