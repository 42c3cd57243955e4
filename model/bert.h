// BERT for pre-training (Devlin et al. 2019): encoder, masked-token head tied to the word embeddings, next-sentence head.
//
// Parameter names are those of Hugging Face's BertForPreTraining. Thread rule: see model.h.
#pragma once

#include "model/model.h"

namespace tempo::model {

std::unique_ptr<Model> make_bert(const ModelConfig& config, c10::Device device, const layers::LayerOptions& options);

}  // namespace tempo::model
