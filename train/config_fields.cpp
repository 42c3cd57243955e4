#include "train/config_fields.h"

#include <limits>
#include <utility>

#include "model/config.h"
#include "train/field_kinds.h"
#include "train/layer_presets.h"

namespace tempo::train {
namespace {

using model::Bounds;

constexpr std::int64_t kMaxCount = 2'147'483'647;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::vector<std::string> kDevices = {"auto", "cpu", "cuda"};
const std::vector<std::string> kPrecisions = {"fp32"};
const std::vector<std::string> kOptimizers = {"adamw", "lamb"};
const std::vector<std::pair<std::string, ScheduleKind>> kSchedules = {{"constant", ScheduleKind::kConstant},
                                                                      {"linear", ScheduleKind::kLinear},
                                                                      {"poly", ScheduleKind::kPoly},
                                                                      {"cosine", ScheduleKind::kCosine}};
const std::vector<std::pair<std::string, model::Family>> kFamilies = {{"bert", model::Family::kBert}};

const Bounds<std::int64_t> kFromOne = {1, kMaxCount};
const Bounds<double> kNotNegative = {0, kInfinity};
const Bounds<double> kPositive = {0, kInfinity, true};
const Bounds<double> kBetaBounds = {0, 1, false, true};

Field resolved_into_others(Field field, std::string fallback) {
  field.print = nullptr;
  field.fallback = std::move(fallback);
  return field;
}

template <typename T>
Field model_number(const model::NumberField<T>& declared) {
  Field field = number(std::string("model.") + declared.key, at(&RunConfig::model, declared.member), declared.bounds,
                       declared.sentence);
  if (declared.belongs_to_weights) field.hugging_face_key = declared.hugging_face_key;
  return field;
}

Field model_activation() {
  Field field =
      choice("model.hidden_act", at(&RunConfig::model, &model::ModelConfig::hidden_act), model::activation_names(),
             "Activation function; gelu is the exact one (erf), the others are its tanh form.");
  field.hugging_face_key = "hidden_act";
  return field;
}

void append_model(std::vector<Field>& fields) {
  fields.push_back(
      choice("model.family", at(&RunConfig::model, &model::ModelConfig::family), kFamilies, "Kind of model."));
  fields.push_back(resolved_into_others(
      choice("model.size", at(&Draft::model_size), model::size_names(model::Family::kBert),
             "Named size: sets hidden_size, num_layers, num_heads and intermediate_size. Single keys override it."),
      "base"));
  for (const auto& declared : model::integer_fields()) fields.push_back(model_number(declared));
  fields.push_back(model_activation());
  for (const auto& declared : model::real_fields()) fields.push_back(model_number(declared));
}

/// A field of what single layers keep, over the preset.
template <typename Enum>
Field layer_option(const char* key, Enum layers::LayerOptions::*member,
                   const std::vector<std::pair<std::string, Enum>>& names, const char* sentence) {
  Field field = choice(std::string("layers.") + key, at(&RunConfig::layers, member), names, sentence);
  field.fallback = "the preset's";
  return field;
}

void append_layers(std::vector<Field>& fields) {
  using layers::LayerOptions;
  fields.push_back(
      choice("layers.preset", at(&RunConfig::layers_preset), layer_preset_names(),
             "What the layers keep for the backward pass; baseline: what PyTorch keeps; tempo: what the Tempo "
             "paper keeps; lean: the least without doing products twice; checkpoint: the input of each block."));
  fields.push_back(
      layer_option("gelu", &LayerOptions::gelu, kGeluNames, "Input and output; output and a mask; input."));
  fields.push_back(layer_option("layer_norm", &LayerOptions::layer_norm, kNormNames,
                                "Input and output; output, where it can be inverted; input."));
  fields.push_back(
      layer_option("dropout", &LayerOptions::dropout, kDropoutNames, "Masks as bytes; as layers.masks says; nothing."));
  fields.push_back(
      layer_option("attention", &LayerOptions::attention, kAttentionNames,
                   "Probabilities, masks and dropped probabilities; probabilities and masks; a number per query."));
  fields.push_back(
      layer_option("recompute", &LayerOptions::recompute, kRecomputeNames,
                   "Products that are done again: none; the first of the feed-forward half; a whole block's."));
  fields.push_back(layer_option("masks", &LayerOptions::masks, kMaskNames,
                                "Masks of what is tempo: a bit per element, or a byte as in the paper."));
  fields.back().print = [print = fields.back().print](const Draft& draft) {
    return uses_masks(draft.layers) ? print(draft) : std::string();
  };
}

void append_data(std::vector<Field>& fields) {
  fields.push_back(required(
      path_list("data.shards", at(&RunConfig::data, &DataConfig::shards),
                "HDF5 shards: files, patterns with * and ?, or folders, of which every *.hdf5 and *.h5 file is taken."),
      "data: {shards: [shards/*.hdf5]}"));
  fields.push_back(path_list("data.validation", at(&RunConfig::data, &DataConfig::validation),
                             "Shards that are never trained on, written as data.shards; the loss on them is measured "
                             "every train.evaluate_every steps."));
  fields.push_back(number("data.sequence_length", at(&RunConfig::data, &DataConfig::sequence_length),
                          Bounds<std::int64_t>{0, kMaxCount},
                          "Tokens of one example; 0: that of the shards. Shards of another length are refused."));
  fields.push_back(number(
      "data.max_predictions", at(&RunConfig::data, &DataConfig::max_predictions), Bounds<std::int64_t>{0, kMaxCount},
      "Places for masked tokens in one example; 0: those of the shards. Fewer than a shard has are refused."));
  fields.push_back(boolean("data.shuffle", at(&RunConfig::data, &DataConfig::shuffle),
                           "Visit the examples of each epoch in another order, decided by train.seed."));
}

Field evaluate_every() {
  Field field = number("train.evaluate_every", at(&RunConfig::train, &TrainConfig::evaluate_every), kFromOne,
                       "Steps from one evaluation on data.validation to the next; the last step always has one.");
  field.print = [](const Draft& draft) {
    return draft.data.validation.empty() ? std::string() : text_of(draft.train.evaluate_every);
  };
  field.fallback = "a twentieth of train.steps";
  return field;
}

void append_train(std::vector<Field>& fields) {
  constexpr auto train = &RunConfig::train;
  using T = TrainConfig;
  fields.push_back(
      choice("train.device", at(train, &T::device), kDevices, "Where to compute; auto: on a GPU if there is one."));
  fields.push_back(
      choice("train.precision", at(train, &T::precision), kPrecisions, "Type of activations and gradients."));
  fields.push_back(
      required(number("train.global_batch", at(train, &T::global_batch), kFromOne, "Examples of one optimizer step."),
               "train: {global_batch: 256}"));
  fields.push_back(
      number("train.micro_batch", at(train, &T::micro_batch), kFromOne,
             "Examples that are computed at once; need not divide global_batch and does not change the result."));
  fields.back().fallback = "global_batch, at most " + std::to_string(kLargestDefaultMicroBatch);
  fields.push_back(required(number("train.steps", at(train, &T::steps), kFromOne, "Optimizer steps of the whole run."),
                            "train: {steps: 1000}"));
  fields.push_back(number("train.seed", at(train, &T::seed),
                          Bounds<std::uint64_t>{0, std::numeric_limits<std::uint64_t>::max()},
                          "Decides initial weights, dropout and the order of the data."));
  fields.push_back(number("train.grad_clip", at(train, &T::grad_clip), kNotNegative,
                          "Gradients whose global norm is larger are scaled down to it; 0: never."));
  fields.push_back(number("train.threads", at(train, &T::threads), Bounds<std::int64_t>{0, kMaxThreads},
                          "CPU threads; 0: every core that this process may use."));
  fields.push_back(
      number("train.max_skipped_steps", at(train, &T::max_skipped_steps), Bounds<std::int64_t>{0, kMaxCount},
             "Steps in a row that may be skipped because a loss or a gradient is not finite; one more ends "
             "the run."));
  fields.push_back(evaluate_every());
}

Field optimizer_betas() {
  Field field = named("optimizer.betas", "two numbers, each " + kBetaBounds.text(),
                      "Decay rates of the running means of the gradient and of its square.");
  field.read = [](Draft& draft, const WrittenValue& value) {
    const std::vector<double> betas = read_numbers(value, 2, kBetaBounds);
    draft.optimizer.beta1 = betas[0];
    draft.optimizer.beta2 = betas[1];
  };
  return stored(std::move(field), [](const Draft& draft) {
    return "[" + text_of(draft.optimizer.beta1) + ", " + text_of(draft.optimizer.beta2) + "]";
  });
}

void append_optimizer(std::vector<Field>& fields) {
  constexpr auto optimizer = &RunConfig::optimizer;
  using O = OptimizerConfig;
  fields.push_back(choice("optimizer.name", at(optimizer, &O::name), kOptimizers, "Update rule."));
  fields.push_back(
      number("optimizer.lr", at(optimizer, &O::lr), kPositive, "Learning rate at the end of the warm-up."));
  fields.push_back(number("optimizer.weight_decay", at(optimizer, &O::weight_decay), kNotNegative,
                          "Decoupled weight decay, of tensors with two or more dimensions only."));
  fields.push_back(optimizer_betas());
  fields.push_back(
      number("optimizer.eps", at(optimizer, &O::eps), kPositive, "Added to the root of the mean squared gradient."));
  fields.push_back(boolean("optimizer.bias_correction", at(optimizer, &O::bias_correction),
                           "Correct the running means for their start at zero."));
}

void append_schedule(std::vector<Field>& fields) {
  constexpr auto schedule = &RunConfig::schedule;
  using S = ScheduleConfig;
  fields.push_back(
      choice("schedule.name", at(schedule, &S::kind), kSchedules, "Course of the learning rate after the warm-up."));
  fields.push_back(number("schedule.warmup_steps", at(schedule, &S::warmup_steps), kNotNegative,
                          "Steps in which the learning rate rises to optimizer.lr; at most train.steps."));
  fields.push_back(resolved_into_others(number("schedule.warmup_ratio", at(&Draft::warmup_ratio), Bounds<double>{0, 1},
                                               "The warm-up as a share of train.steps, in place of warmup_steps."),
                                        ""));
  fields.push_back(number("schedule.min_lr", at(schedule, &S::min_lr), kNotNegative,
                          "Learning rate that the decay does not go below; not for constant."));
}

Field init_from() {
  Field field =
      named("init.from", "path",
            "Folder (Hugging Face or checkpoint) whose weights the run starts from. Its config.json gives the model.");
  field.read = [](Draft& draft, const WrittenValue& value) { draft.init.from = read_path(value); };
  return stored(std::move(field),
                [](const Draft& draft) { return draft.init.from ? quoted_path(*draft.init.from) : std::string(); });
}

/// A field of a run that starts from a folder, printed only there.
Field only_with_from(Field field) {
  field.print = [print = std::move(field.print)](const Draft& draft) {
    return draft.init.from ? print(draft) : std::string();
  };
  return field;
}

void append_init(std::vector<Field>& fields) {
  const std::vector<std::pair<std::string, bool>> choices = {{"fresh", false}, {"keep", true}};
  fields.push_back(init_from());
  fields.push_back(only_with_from(choice(
      "init.optimizer", at(&RunConfig::init, &InitConfig::keep_optimizer), choices,
      "keep: go on with the moments of the checkpoint init.from, as BERT's second phase does; fresh: start at zero.")));
  fields.push_back(only_with_from(
      number("init.step", at(&RunConfig::init, &InitConfig::step), Bounds<std::int64_t>{0, kMaxCount},
             "Steps that count as done: learning rate and data go on after them; 0: from the beginning.")));
}

Field run_dir() {
  Field field = path("run.dir", at(&RunConfig::run, &RunSection::dir), "Folder that the run writes, made by it.");
  return required(std::move(field), "run: {dir: runs/first}");
}

void append_run(std::vector<Field>& fields) {
  fields.push_back(run_dir());
  fields.push_back(number("run.log_every", at(&RunConfig::run, &RunSection::log_every), kFromOne,
                          "Steps from one line of the log to the next; the last step is always logged."));
  fields.push_back(number("run.checkpoint_every", at(&RunConfig::run, &RunSection::checkpoint_every),
                          Bounds<std::int64_t>{0, kMaxCount},
                          "Steps from one checkpoint to the next; 0: only one, after the last step."));
  fields.push_back(number("run.keep", at(&RunConfig::run, &RunSection::keep), Bounds<std::int64_t>{0, kMaxCount},
                          "Checkpoints that stay, the newest; 0: all."));
  fields.push_back(boolean("run.export", at(&RunConfig::run, &RunSection::export_model),
                           "Write the trained model as a Hugging Face folder at the end."));
  fields.push_back(boolean("run.overwrite", at(&RunConfig::run, &RunSection::overwrite),
                           "Replace a run that is already in run.dir."));
}

std::vector<Field> declare() {
  std::vector<Field> fields;
  append_model(fields);
  append_layers(fields);
  append_data(fields);
  append_train(fields);
  append_optimizer(fields);
  append_schedule(fields);
  append_run(fields);
  append_init(fields);
  append_prepare_fields(fields);
  return fields;
}

}  // namespace

const std::vector<Section>& config_sections() {
  static const std::vector<Section> sections = {
      {"model", "What is trained. Keys that are not written are those of size, or of BERT-base."},
      {"layers", "What the model's layers keep for the backward pass. Keys that are not written are those of preset."},
      {"data",
       "What it is trained on. Paths in a file start at its folder, on the command line at the working directory."},
      {"train", "How long, in which pieces, and where."},
      {"optimizer", "How gradients change the weights."},
      {"schedule", "How the learning rate changes."},
      {"run", "What is written, and where."},
      {"init", "What the weights start from; without it they are drawn at random."},
      {"prepare", "What tempo prepare makes shards from. tempo train reads what it has made by data.shards."},
  };
  return sections;
}

const std::vector<Field>& config_fields() {
  static const std::vector<Field> fields = declare();
  return fields;
}

}  // namespace tempo::train
