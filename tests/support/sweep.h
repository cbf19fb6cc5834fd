/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How far tests go that try one thing after the other for long. A sanitizer takes many times as
 * long, and what it looks for is in what code is executed, not in how many ranks or elements there
 * are. */
#ifndef WEFT_SWEEP_H
#define WEFT_SWEEP_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define SWEPT(whole, sanitized) (sanitized)
#else
#    define SWEPT(whole, sanitized) (whole)
#endif

#endif
