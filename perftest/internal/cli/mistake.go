package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/probes/counters"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
)

var errNothing = errors.New("nothing to measure: a list is empty")

// likeness is the maximum number of letters in which a suggested command may differ from the argument.
const likeness = 2

// noCommand rejects arguments of the root command, with suggestions.
func noCommand(cmd *cobra.Command, args []string) error {
	err := cobra.NoArgs(cmd, args)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; %s", err, meant(cmd, args[0]))
}

// meant returns suggestions for arg.
func meant(cmd *cobra.Command, arg string) string {
	cmd.SuggestionsMinimumDistance = likeness
	list := cmd.SuggestionsFor(arg)
	switch {
	case cmd.Flags().Changed("counters") && slices.Contains(counters.Choices(), arg):
		return "a source of counters is in one word with the flag: --counters=" + arg
	case len(list) > 0:
		return "there is " + strings.Join(list, ", ")
	case slices.Contains(bench.TestNames(), arg):
		return "tests are named by -t"
	}
	return fmt.Sprintf("to measure against a server there is %s client ADDRESS", cmd.Name())
}

// flagError is a usage error of flags. For numbers it has the expected form.
func flagError(_ *cobra.Command, err error) error {
	var flag *pflag.InvalidValueError
	var number *strconv.NumError
	var quantity *quantity.Error
	switch {
	case !errors.As(err, &flag):
	case errors.As(err, &number):
		err = fmt.Errorf("--%s %s: want %s", flag.GetFlag().Name, flag.GetValue(), expectedForm(number))
	case errors.As(err, &quantity):
		err = fmt.Errorf("--%s %s: %w", flag.GetFlag().Name, flag.GetValue(), quantity)
	}
	return &usageError{err}
}

// expectedForm returns the expected form of a number.
func expectedForm(e *strconv.NumError) string {
	switch {
	case errors.Is(e.Err, strconv.ErrRange):
		return "a smaller number"
	case e.Func == "ParseBool":
		return "true or false"
	case e.Func == "ParseFloat":
		return "a number"
	}
	return "a whole number"
}
