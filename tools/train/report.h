/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `weft train` shows: a JSON object or a row a training, and the plot.
 */
#ifndef WEFT_TOOLS_TRAIN_REPORT_H
#define WEFT_TOOLS_TRAIN_REPORT_H

#include "tools/train/algorithm.h"
#include "tools/train/loop.h"

/** Prints one training as a line of JSON. @return CLI_OK or CLI_NO. */
int train_report_json(const struct train_options *options, const struct train_algorithm *algorithm,
                      const struct train_outcome *outcome);

/** Prints all trainings of @p options as a table, a row an algorithm. @p outcomes: of every
 *  algorithm with the first seed, then with the next. @return CLI_OK or an exit status. */
int train_report_table(const struct train_options *options, const struct train_outcome *outcomes);

/** Draws accuracies and consensus distances of the trainings with the first seed over time to
 *  options->plot. As above. */
int train_report_plot(const struct train_options *options, const struct train_outcome *outcomes);

#endif
