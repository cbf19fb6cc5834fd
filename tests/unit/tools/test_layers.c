/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of layers: what is read, and what an error says of where, what was found and expected. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

#include "tools/cli/layers.h"

static struct layers read_text(const char *text)
{
    struct layers layers = {0};

    cr_assert_eq(layers_read(&layers, "table", text, strlen(text)), WEFT_OK, "%s: %s", text,
                 weft_error_text());
    return layers;
}

static void expect_layer(const struct layers *layers, size_t index, const char *name,
                         size_t elements, double ready_us)
{
    cr_assert_lt(index, layers->count);
    cr_expect_str_eq(layers->at[index].name, name);
    cr_expect_eq(layers->at[index].elements, elements, "%s: %zu", name, layers->at[index].elements);
    cr_expect_eq(layers->at[index].ready_us, ready_us, "%s: %g", name, layers->at[index].ready_us);
}

static void expect_refused(const char *text, size_t length, const char *error)
{
    struct layers layers = {.count = 7};

    cr_assert_eq(layers_read(&layers, "table", text, length), WEFT_ERR_FORMAT, "%s", text);
    cr_expect(strstr(weft_error_text(), error), "'%s' says: %s; expected: %s", text,
              weft_error_text(), error);
    cr_expect(strncmp(weft_error_text(), "table: ", 7) == 0, "%s", weft_error_text());
    cr_expect_eq(layers.count, 7);
    cr_expect(!layers.at);
}

Test(layers, json_with_what_people_add)
{
    struct layers layers =
        read_text(" {\"name\": \"net\", \"source\": \"made up\", \"batch\": 3, \"layers\": ["
                  "{\"name\": \"fc\", \"elements\": 10, \"ready_us\": 1.5, \"kind\": \"fc\"},"
                  "{\"elements\": 2.5e6, \"ready_us\": 3},"
                  "{\"name\": \"\xc3\xa9\", \"elements\": 0, \"ready_us\": 0}]}");

    cr_assert_eq(layers.count, 3);
    expect_layer(&layers, 0, "fc", 10, 1.5);
    expect_layer(&layers, 1, "1", 2500000, 3);
    expect_layer(&layers, 2, "\xc3\xa9", 0, 0);
    cr_expect_str_eq(layers.name, "net");
    cr_expect_str_eq(layers.source, "made up");
    layers_free(&layers);
    cr_expect(!layers.at && !layers.name);
}

Test(layers, csv_in_every_dress)
{
    static const char *const dresses[] = {
        "name,elements,ready_us\na b,10,1.5\nc,20,3\n",
        "a b,10,1.5\nc,20,3",
        "\xef\xbb\xbf\"name\",\"elements\",\"ready_us\"\r\n\"a b\",\"10\",\"1.5\"\r\nc,20,3\r\n",
        "# by hand\n\n  a b , 10\t, 1.5 \r\n\n# more\nc,2e1,+3\n\n",
        "READY_US,Note,Elements,Name\n1.5,\"one,\ntwo\",10,a b\n3,,20,c\n",
    };

    for (size_t i = 0; i < sizeof dresses / sizeof dresses[0]; i++) {
        struct layers layers = read_text(dresses[i]);
        cr_assert_eq(layers.count, 2, "%s: %zu", dresses[i], layers.count);
        expect_layer(&layers, 0, "a b", 10, 1.5);
        expect_layer(&layers, 1, "c", 20, 3);
        cr_expect(!layers.name && !layers.source);
        layers_free(&layers);
    }
}

Test(layers, csv_names)
{
    struct layers layers = read_text("\"a \"\"b\"\", c\",1,2\n,3,4\n\" x \",5,6\n");

    cr_assert_eq(layers.count, 3);
    expect_layer(&layers, 0, "a \"b\", c", 1, 2);
    expect_layer(&layers, 1, "1", 3, 4);
    expect_layer(&layers, 2, " x ", 5, 6);
    layers_free(&layers);
}

Test(layers, many)
{
    static char text[40000];
    size_t used = 0;

    for (int i = 0; i < 3000; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%d,%d,%d\n", i % 7, i, i);
    struct layers layers = read_text(text);
    cr_assert_eq(layers.count, 3000);
    expect_layer(&layers, 2999, "3", 2999, 2999);
    layers_free(&layers);
}

Test(layers, errors_say_where_what_and_what_instead)
{
    static const char *const cases[][2] = {
        {"", "no layers; expected at least one"},
        {"name,elements,ready_us\n", "no layers; expected at least one"},
        {"{\"layers\": []}", "no layers; expected at least one"},
        {"{\"layers\": [\n\n!]}", "line 3: "},
        {"{\"layers\": [], \"layers\": []}", "duplicate"},
        {"[1]", "the document is an array; expected an object with \"layers\""},
        {"{\"layer\": []}", "layers is not there; expected an array"},
        {"{\"layers\": {}}", "layers is an object; expected an array"},
        {"{\"layers\": [{\"elements\": 1, \"ready_us\": 1}, 3]}",
         "layers[1] is a number; expected an object"},
        {"{\"layers\": [{\"name\": 1, \"elements\": 1, \"ready_us\": 1}]}",
         "layers[0].name is a number; expected a string"},
        {"{\"layers\": [{\"elements\": \"1\", \"ready_us\": 1}]}",
         "layers[0].elements is a string; expected a number"},
        {"{\"layers\": [{\"elements\": 1}]}", "layers[0].ready_us is not there; expected a number"},
        {"{\"layers\": [{\"elements\": 1.5, \"ready_us\": 1}]}",
         "layers[0]: elements is 1.5; expected a whole number from 0 to 2^53"},
        {"{\"layers\": [{\"elements\": -1, \"ready_us\": 1}]}", "elements is -1; expected"},
        {"{\"layers\": [{\"elements\": 1, \"ready_us\": 1e300}]}",
         "layers[0]: ready_us is 1e+300; expected microseconds"},
        {"{\"layers\": [{\"name\": \"a\\nb\", \"elements\": 1, \"ready_us\": 1}]}",
         "layers[0]: the name has control characters"},
        {"a,1\n", "line 1: 2 columns; expected 3: name,elements,ready_us"},
        {"a,1,2,3\n", "line 1: 4 columns; expected 3"},
        {"a;1;2\n", "line 1: 1 column; expected 3"},
        {"name,elements,ready_us\na,1\n", "line 2: 2 columns; expected 3"},
        {"name,elements,ready_us,kind\na,1,2\n",
         "line 2: 3 columns; expected 4 as in the heading: name,elements,ready_us"},
        {"name,size,time\n",
         "line 1: elements is 'size'; expected a number, or a heading: name,elements,ready_us"},
        {"a,1,2\n\n# remark\nb,x,2\n", "line 4: elements is 'x'; expected a number"},
        {"a,1,2\nb,1,\n", "line 2: ready_us is ''; expected a number"},
        {"a,0x10,2\n", "line 1: elements is '0x10'; expected a number"},
        {"a,1 2,2\n", "line 1: elements is '1 2'; expected a number"},
        {"a,1,nan\n", "line 1: ready_us is nan; expected microseconds"},
        {"a,1,-2\n", "line 1: ready_us is -2; expected microseconds from 0 to 1e15"},
        {"a,inf,1\n", "line 1: elements is inf; expected a whole number"},
        {"a,9007199254740994,1\n", "line 1: elements is 9007199254740994; expected"},
        {"a,1,2\n\"b,1,2\n", "line 2: a quote that is not closed"},
        {"\"a\"b,1,2\n", "line 1: 'b' after a closing quote; expected a comma"},
        {"\"a\nb\",1,2\n", "line 1: the name has control characters"},
        {"x,ready_us,elements\n\"a\nb\",1,2\n\n,1,k\n", "line 5: elements is 'k'"},
        {"\xff\xfe,1,2\n", "line 1: the name has control characters or is no UTF-8"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    expect_refused("a,1,2\nb\0,1,2\n", 12, "a zero byte at 7; expected text");
    expect_refused("{\"layers\": [\0]}", 15, "line 1: ");
}
