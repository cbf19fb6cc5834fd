/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MOST_COLUMNS = 512 };

/* Columns of the line of progress that stands there. The signal handler reads it. */
static atomic_int shown;
static atomic_int catching;
static atomic_int caught;
static int handling;

/* Columns of a terminal; 0: @p file is none. */
static int columns_of(int file)
{
    struct winsize size;
    const char *text = getenv("COLUMNS");
    int columns = text ? (int)strtol(text, NULL, 10) : 0;

    if (!isatty(file))
        return 0;
    if (columns > 0)
        return columns;
    if (ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

int cli_width(void)
{
    return columns_of(STDOUT_FILENO);
}

int cli_shows_progress(void)
{
    const char *terminal = getenv("TERM");

    return isatty(STDERR_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

/* ---- signals ---- */

/* Blanks over the line. Only what a signal handler may call. */
static void erase(void)
{
    char blanks[MOST_COLUMNS + 2];
    int columns = atomic_exchange_explicit(&shown, 0, memory_order_relaxed);
    int reason = errno;

    if (columns > 0) {
        memset(blanks, ' ', sizeof blanks);
        blanks[0] = '\r';
        blanks[columns + 1] = '\r';
        ssize_t written = write(STDERR_FILENO, blanks, (size_t)columns + 2);
        (void)written; /* nothing can be done about it */
    }
    errno = reason;
}

static void on_signal(int number)
{
    int none = 0;

    if (atomic_load_explicit(&catching, memory_order_relaxed) &&
        atomic_compare_exchange_strong_explicit(&caught, &none, number, memory_order_relaxed,
                                                memory_order_relaxed))
        return;
    erase();
    signal(number, SIG_DFL);
    raise(number); /* it is blocked until this function returns */
}

/* What is ignored (by nohup, or by a shell for what runs behind) stays ignored. */
static void handle_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction before;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    if (handling)
        return;
    handling = 1;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
}

void cli_catch_signals(void)
{
    atomic_store_explicit(&catching, 1, memory_order_relaxed);
    handle_signals();
}

int cli_caught_signal(void)
{
    return atomic_load_explicit(&caught, memory_order_relaxed);
}

/* ---- progress ---- */

void cli_progress(const char *format, ...)
{
    char text[MOST_COLUMNS + 1];
    va_list list;

    if (!cli_shows_progress())
        return;
    handle_signals();
    int most = columns_of(STDERR_FILENO) - 1; /* the last column would move to the next line */
    if (most > MOST_COLUMNS)
        most = MOST_COLUMNS;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    text[most > 0 ? most : 0] = '\0';
    int length = (int)strlen(text);
    int before = atomic_load_explicit(&shown, memory_order_relaxed);
    int columns = length > before ? length : before;
    /* Before it is written: a signal in between erases too much rather than too little. */
    atomic_store_explicit(&shown, columns, memory_order_relaxed);
    fprintf(stderr, "\r%-*s", columns, text);
    fflush(stderr);
    atomic_store_explicit(&shown, length, memory_order_relaxed);
}

void cli_progress_end(void)
{
    erase();
}
