/* SPDX-License-Identifier: BSD-3-Clause */
/* Documents that are wrong: the error gives the line, what was found, and what was expected. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weft/format.h>
#include <weft/schedule.h>

#include "support/compute.h"

static struct weft_op *user_op;

static void setup(void)
{
    user_op = idle_op("quantise");
}

static void teardown(void)
{
    weft_op_destroy(user_op);
}

TestSuite(malformed, .init = setup, .fini = teardown);

/* Reading fails with WEFT_ERR_FORMAT, and the text says both. */
static void expect_malformed(const char *text, const char *found, const char *wanted)
{
    const struct weft_op *ops[] = {user_op};
    struct weft_schedule **schedules;
    size_t count;
    int status = weft_schedule_read(text, strlen(text), ops, 1, &schedules, &count);

    cr_expect_eq(status, WEFT_ERR_FORMAT, "%s (%s) for:\n%s", weft_status_name(status),
                 status ? weft_error_text() : "read", text);
    if (!status)
        return;
    cr_expect_not_null(strstr(weft_error_text(), found), "\"%s\" does not say \"%s\" for:\n%s",
                       weft_error_text(), found, text);
    cr_expect_not_null(strstr(weft_error_text(), wanted), "\"%s\" does not say \"%s\" for:\n%s",
                       weft_error_text(), wanted, text);
}

/* As above, for a statement on line 9 of a text document. */
static void expect_bad_statement(const char *statement, const char *found, const char *wanted)
{
    char text[1024];

    snprintf(text, sizeof text,
             "weft 1\nschedule \"s\" size 4\nrank 0 {\ninput in f32 8\ninout x f32 8\n"
             "scratch d f64 8\nvalue v\njoin\n%s\n}\n",
             statement);
    expect_malformed(text, found, wanted);
    expect_malformed(text, "line 9", "expected");
}

Test(malformed, documents_that_do_not_begin_well)
{
    expect_malformed("", "line 1, column 1: found the end of the text", "`weft`");
    expect_malformed("\n\n  weaver", "line 3, column 3: found `weaver`", "`weft`");
    expect_malformed("weft", "end of the text", "version");
    expect_malformed("weft 2\n", "`2`", "expected 1");
    expect_malformed("weft 1 schedule", "`schedule`", "the end of the line");
    expect_malformed("weft 1\nschedule s size 1", "`s`", "the name in quotes");
    expect_malformed("weft 1\nschedule \"s size 1", "`\"s size 1`", "the name in quotes");
    expect_malformed("weft 1\nschedule \"s\\n\" size 1", "line 2", "the name in quotes");
    expect_malformed("weft 1\nschedule \"\x01\" size 1\nrank 0 {\n}", "line 3", "one line of text");
    expect_malformed("weft 1\nschedule \"s\" size 0", "`0`", "at least 1");
    expect_malformed("weft 1\nschedule \"s\" size 2147483648", "2147483648", "at most 2147483647");
    expect_malformed("weft 1\nschedule \"s\" size 99999999999999999999", "9999", "at most");
    expect_malformed("weft 1\nschedule \"s\" size 1\n", "end of the text", "`rank`");
}

Test(malformed, ranks_that_are_wrong)
{
    expect_malformed("weft 1\nschedule \"s\" size 2\nrank 2 {\n}", "line 3, column 6: found `2`",
                     "at most 1");
    expect_malformed("weft 1\nschedule \"s\" size 2\nrank 1 {\n}\nrank 1 {\n}", "line 5",
                     "ascending");
    expect_malformed("weft 1\nschedule \"s\" size 2\nrank 1 {\n}\nrank 0 {\n}", "line 5",
                     "ascending");
    expect_malformed("weft 1\nschedule \"s\" size 2\nrank 1 {\n", "end of the text", "`}`");
    expect_malformed("weft 1\nschedule \"s\" size 2\nrank 1 {} x", "`x`", "the end of the line");
    expect_malformed("weft 1\nschedule \"s\" size 2\nrank 1 {\n} x", "`x`", "the end of the line");
    expect_malformed("weft 1\nschedule \"s\" size 2\nrank 1 {\n}\n}", "`}`", "`rank`");
}

Test(malformed, statements_that_are_wrong)
{
    expect_bad_statement("sned x to 1", "`sned`", "send, recv");
    expect_bad_statement("@", "`@`", "send, recv");
    expect_bad_statement("input y f33 8", "`f33`", "one of f32, i8, i16");
    expect_bad_statement("input y f32 8 on", "end of the line", "`device`");
    expect_bad_statement("input y f32 8 on host", "`host`", "`device`");
    expect_bad_statement("input y f32 8 device", "`device`", "the end of the line");
    expect_bad_statement("input y bytes0 8", "`bytes0`", "bytesN (opaque, N of 1 to 1073741823)");
    expect_bad_statement("input y bytes1073741824 8", "`bytes1073741824`", "bytesN");
    expect_bad_statement("input y bytes024 8", "`bytes024`", "bytesN");
    expect_bad_statement("input y bytes 8", "`bytes`", "bytesN");
    expect_bad_statement("input y bytes24 384307168202282326", "`count`", "elements of 24 bytes");
    expect_bad_statement("input y f32 -1", "the expression `-1` is -1", "a number from 0");
    expect_bad_statement("input x f32 1", "argument `name` is \"x\"", "a new name");
    expect_bad_statement("input y f64 9223372036854775807", "argument `count`", "at most");
    expect_bad_statement("value v", "argument `name` is \"v\"", "a new name");
    expect_bad_statement("value w max", "end of the line", "a number");
    expect_bad_statement("send y to 1", "`y`", "the name of a slot");
    expect_bad_statement("send x to 4", "argument `peer` is 4", "0..3");
    expect_bad_statement("send x to 99999999999", "99999999999", "at most 2147483647");
    expect_bad_statement("send x 1", "`1`", "`to`");
    expect_bad_statement("send x[0:9] to 1", "`9`", "at most 8");
    expect_bad_statement("send x[5:4] to 1", "`]`", "not before its begin");
    expect_bad_statement("send x[5] to 1", "`]`", "`:`");
    expect_bad_statement("send x[0:1 count w] to 1", "`w`", "the name of a value");
    expect_bad_statement("send x to 1 tag 4294967296", "4294967296", "at most 4294967295");
    expect_bad_statement("send x to 1 after n7", "`n7`", "the name of a node");
    expect_bad_statement("send x to 1 after nobody", "`nobody`", "the name of a node");
    expect_bad_statement("send x to 1 after n0, @", "`@`", "the name of a node");
    expect_bad_statement("recv in from 1", "input slot", "may be written");
    expect_bad_statement("recv x from 1 gives v", "`gives`", "the end of the line");
    expect_bad_statement("recv up to x from 1 gives w", "`w`", "the name of a value");
    expect_bad_statement("reduce plus x = x, x", "`plus`", "one of sum, prod");
    expect_bad_statement("reduce sum x = x x", "`x`", "`,`");
    expect_bad_statement("reduce band x = x, in", "`op` is band", "a reduction of f32");
    expect_bad_statement("reduce quantise x = x, in", "`op` is quantise", "a reduction of f32");
    expect_bad_statement("copy x = d", "64 bytes", "32");
    expect_bad_statement("compute sum", "`op` is sum", "a compute function");
    expect_bad_statement("compute quantise out in", "input slot", "may be written");
    expect_bad_statement("compute quantise in x, x", "`x`", "`in`, `out` or `update`");
    expect_bad_statement("event channel 4294967295", "4294967295", "at most 4294967294");
    expect_bad_statement("signal to 1", "end of the line", "`channel`");
    expect_bad_statement("n5: join", "`n5`", "`n1`");
    expect_bad_statement("any: join", "`any`", "after any");
    expect_bad_statement("a \"b\" join", "`join`", "`:`");
    expect_bad_statement("result x = in from ranks 0..3", "`result->op`", "operation");
    expect_bad_statement("result x = sum of in from ranks 3..0", "line 9", "ascending");
    expect_bad_statement("result x = sum of in[1:8] from ranks 0..1", "`8`", "9, for a range");
    expect_bad_statement("result x = sum of in from 3", "`3`", "`rank` or `ranks`");
    expect_bad_statement("result in = x from rank 1", "input slot", "may be written");
}

Test(malformed, two_nodes_of_one_name)
{
    expect_malformed("weft 1\nschedule \"s\" size 1\nrank 0 {\na: join\na: join\n}",
                     "line 5, column 1: found `a`", "no other node");
}

/* A JSON document with one statement in its place. */
static void expect_bad_json(const char *buffers, const char *nodes, const char *results,
                            const char *found, const char *wanted)
{
    char text[2048];

    snprintf(text, sizeof text,
             "{\"weft\": 1, \"schedule\": \"s\", \"size\": 2, \"ranks\": [\n{\"rank\": 0,\n"
             "\"buffers\": [{\"name\": \"x\", \"kind\": \"inout\", \"dtype\": \"f32\", "
             "\"count\": 8}%s],\n\"values\": [{\"name\": \"v\"}],\n\"nodes\": "
             "[{\"kind\": \"join\"},\n%s],\n\"results\": [%s]}]}",
             buffers, nodes, results);
    expect_malformed(text, found, wanted);
}

Test(malformed, json_that_is_not)
{
    expect_malformed("{", "line 1", "a JSON document");
    expect_malformed("{\"weft\": 1,\n\"weft\": 1}", "line 2", "duplicate");
    expect_malformed("{\"weft\": \"\xff\"}", "line 1", "a JSON document");
    expect_malformed("{}", "line 1: weft is missing", "a number");
    expect_malformed("{\"weft\": 0}", "schedule is missing", "a string");
    expect_malformed("{\"wefft\": 1}", "has the key \"wefft\"", "weft, schedule, size, ranks");
    expect_malformed("{\"weft\": 1, \"schedule\": \"s\", \"size\": 0, \"ranks\": []}", "size 0",
                     "at least 1");
    expect_malformed("{\"weft\": 1, \"schedule\": \"s\", \"size\": 1, \"ranks\": []}", "no ranks",
                     "at least one");
    expect_malformed("{\"weft\": 1, \"schedule\": \"s\", \"size\": 1,\n\"ranks\":\n\n[3]}",
                     "line 4: ranks[0] is 3", "an object");
    expect_malformed("{\"weft\": 1, \"schedule\": \"s\", \"size\": 1,\n\"ranks\": [{\"rank\": 1}]}",
                     "line 2: ranks[0].rank is 1", "0 to 0");
    expect_malformed("{\"weft\": 1, \"schedule\": \"s\", \"size\": 3, \"ranks\": "
                     "[{\"rank\": 1},\n {\"rank\": 1}]}",
                     "line 2: ranks[1] is of rank 1", "ascending");
}

Test(malformed, json_statements_that_are_wrong)
{
    expect_bad_json(",\n{\"name\": \"y\"}", "{}", "", "line 4: ranks[0].buffers[1].kind is missing",
                    "a string");
    expect_bad_json(", {\"name\": \"y\", \"kind\": \"in\", \"dtype\": \"f32\", \"count\": 1}", "{}",
                    "", "the kind \"in\"", "input, output");
    expect_bad_json(", {\"name\": \"y\", \"kind\": \"input\", \"dtype\": \"f31\", \"count\": 1}",
                    "{}", "", "the dtype \"f31\"", "i8, i16");
    expect_bad_json(", {\"name\": \"y\", \"kind\": \"input\", \"dtype\": \"f32\", \"count\": 1, "
                    "\"memory\": \"gpu\"}",
                    "{}", "", "memory \"gpu\"", "expected host or device");
    expect_bad_json(", {\"name\": \"y\", \"kind\": \"input\", \"dtype\": \"bytes0\", \"count\": 1}",
                    "{}", "", "the dtype \"bytes0\"", "bytesN");
    expect_bad_json("", "{\"kind\": \"jion\"}", "", "line 6: ranks[0].nodes[1].kind is \"jion\"",
                    "send, recv");
    expect_bad_json("", "{\"kind\": \"join\", \"peer\": 1}", "", "line 6: ranks[0].nodes[1]",
                    "one of kind, label, any, after");
    expect_bad_json("", "{\"kind\": \"join\", \"after\": [2]}", "", "nodes[1].after[0] is 2",
                    "0 to 1");
    expect_bad_json("", "{\"kind\": \"join\", \"any\": 1}", "", "nodes[1].any is 1",
                    "true or false");
    expect_bad_json("", "{\"kind\": \"join\", \"label\": \"\\u0001\"}", "", "nodes[1] is wrong",
                    "one line of text");
    expect_bad_json("", "{\"kind\": \"send\", \"peer\": 0}", "", "regions is missing", "an array");
    expect_bad_json("", "{\"kind\": \"send\", \"peer\": 0, \"regions\": []}", "",
                    "nodes[1].regions has 0", "1 regions");
    expect_bad_json(
        "", "{\"kind\": \"send\", \"peer\": 0, \"regions\": [{\"slot\": \"z\", \"count\": 1}]}", "",
        "regions[0].slot is \"z\"", "the name of a slot");
    expect_bad_json(
        "", "{\"kind\": \"send\", \"peer\": 0, \"regions\": [{\"slot\": \"x\", \"count\": 9}]}", "",
        "nodes[1] is wrong", "8 elements");
    expect_bad_json(
        "", "{\"kind\": \"send\", \"peer\": 2, \"regions\": [{\"slot\": \"x\", \"count\": 1}]}", "",
        "`peer` is 2", "0..1");
    expect_bad_json(
        "", "{\"kind\": \"send\", \"peer\": -1, \"regions\": [{\"slot\": \"x\", \"count\": 1}]}",
        "", "nodes[1].peer is -1", "0 to 2147483647");
    expect_bad_json(
        "", "{\"kind\": \"send\", \"peer\": 0.5, \"regions\": [{\"slot\": \"x\", \"count\": 1}]}",
        "", "nodes[1].peer is 0.5", "a number");
    expect_bad_json("",
                    "{\"kind\": \"recv\", \"peer\": 0, \"produces\": \"v\", \"regions\": "
                    "[{\"slot\": \"x\", \"count\": 1}]}",
                    "", "produces", "up_to");
    expect_bad_json("",
                    "{\"kind\": \"recv\", \"peer\": 0, \"up_to\": true, \"produces\": \"w\", "
                    "\"regions\": [{\"slot\": \"x\", \"count\": 1}]}",
                    "", "produces is \"w\"", "the name of a value");
    expect_bad_json("", "{\"kind\": \"reduce\", \"op\": \"plus\", \"regions\": []}", "",
                    "op is \"plus\"", "sum, prod");
    expect_bad_json("",
                    "{\"kind\": \"copy\", \"regions\": [{\"slot\": \"x\", \"count\": 1, "
                    "\"written\": true}, {\"slot\": \"x\", \"count\": 1}]}",
                    "", "written", "compute");
    expect_bad_json("", "{\"kind\": \"join\"}", "{\"from\": \"x\"}", "results[0].region is missing",
                    "an object");
    expect_bad_json("", "{\"kind\": \"join\"}",
                    "{\"region\": {\"slot\": \"x\", \"count\": 1}, \"from\": \"x\", \"first\": 2}",
                    "results[0] is wrong", "0..1");
}

/* ---- what the builder refuses, and what cannot be read ---- */

/* `rank`: whose node it is; -1: nobody's. `peer`: whether it is the peer that is wrong. */
static void expect_refusal(const char *line, int rank, int peer)
{
    struct weft_read_options options;
    struct weft_read_refusal refusal = {.struct_size = sizeof refusal, .rank = 77};
    struct weft_schedule **schedules;
    char text[512];
    size_t count;

    snprintf(
        text, sizeof text,
        "weft 1\nschedule \"s\" size 4\nrank 2 {\ninout x f32 8\nscratch d f64 8\njoin\n%s\n}\n",
        line);
    weft_read_options_init(&options);
    options.refusal = &refusal;
    cr_expect_eq(weft_schedule_read_with(text, strlen(text), &options, &schedules, &count),
                 WEFT_ERR_FORMAT, "%s", line);
    cr_expect_eq(refusal.rank, rank, "%s: rank %d", line, refusal.rank);
    if (rank >= 0) {
        cr_expect_eq(refusal.node, 1);
        cr_expect_eq(refusal.size, 4);
        cr_expect_eq(refusal.peer, peer, "%s: peer %d", line, refusal.peer);
    }
}

Test(malformed, a_node_that_no_schedule_can_have_is_told_apart)
{
    expect_refusal("send x to 4", 2, 1);
    expect_refusal("signal to 9 channel 0", 2, 1);
    expect_refusal("send x[0:9] to 1", 2, 0);
    expect_refusal("send x[0:4+5] to 1", 2, 0);
    expect_refusal("send x[0-1:4] to 1", -1, 0);
    expect_refusal("copy x = d", 2, 0);
    expect_refusal("reduce band x = x, x", 2, 0);
    expect_refusal("send x t 4", -1, 0);
    expect_refusal("send peer to 4", -1, 0);
    expect_refusal("input x f32 1", -1, 0); /* a slot, no node */
}
