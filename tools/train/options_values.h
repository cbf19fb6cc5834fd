/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options of `weft train` by number, and the reading of their values.
 */
#ifndef WEFT_TOOLS_TRAIN_OPTIONS_VALUES_H
#define WEFT_TOOLS_TRAIN_OPTIONS_VALUES_H

#include "tools/train/options.h"

/**
 * Each reads the value @p text of an option into @p options, a struct train_options: `take` of a
 * struct cli_option. Texts are borrowed as long as the options are used.
 * @return CLI_OK; CLI_WRONG or CLI_NO after a line.
 */
int train_take_algorithms(void *options, const char *command, const char *text);
int train_take_merge(void *target, const char *command, const char *text);
int train_take_model(void *target, const char *command, const char *text);
int train_take_hidden(void *options, const char *command, const char *text);
int train_take_net(void *options, const char *command, const char *text);
int train_take_imbalance(void *options, const char *command, const char *text);
int train_take_shards(void *options, const char *command, const char *text);
int train_take_density(void *options, const char *command, const char *text);
int train_take_bits(void *options, const char *command, const char *text);
int train_take_sample_bits(void *options, const char *command, const char *text);
int train_take_compressed_steps(void *options, const char *command, const char *text);
int train_take_osp_share(void *options, const char *command, const char *text);
int train_take_patience(void *options, const char *command, const char *text);

/** "NAME, NAME, ..." of all algorithms, or of those that take models of a device. */
void train_list_algorithms(char *text, size_t size, int on_devices);

#endif
