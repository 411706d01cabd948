// Package cpuid executes the instruction CPUID. It has no functions on other architectures than amd64.
package cpuid
