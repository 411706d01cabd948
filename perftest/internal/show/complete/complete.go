// Package complete defines the completion of flag values by the shell.
package complete

import (
	"strings"

	"github.com/spf13/cobra"
)

// One completes a flag with one of the values that the function returns when the shell asks. One,
// List and Size panic if the command has no such flag, or the flag already has a completion.
func One(cmd *cobra.Command, flag string, values func() []string) {
	register(cmd, flag, func(string) []string { return values() }, cobra.ShellCompDirectiveNoFileComp)
}

// List completes a flag with several values, separated by commas.
func List(cmd *cobra.Command, flag string, values func() []string) {
	register(cmd, flag, func(begun string) (lists []string) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		for _, v := range values() {
			if !strings.Contains(","+before, ","+v+",") {
				lists = append(lists, before+v)
			}
		}
		return lists
	}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)
}

// Size completes a number of bytes with its units.
func Size(cmd *cobra.Command, flag string, units ...string) {
	register(cmd, flag, func(begun string) (sizes []string) {
		if n := len(begun); n == 0 || begun[n-1] < '0' || begun[n-1] > '9' {
			return nil
		}
		sizes = []string{begun}
		for _, u := range units {
			sizes = append(sizes, begun+u)
		}
		return sizes
	}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)
}

// Files completes a flag with files that have one of the endings.
func Files(cmd *cobra.Command, flag string, endings ...string) {
	must(cmd.MarkFlagFilename(flag, endings...))
}

// Values returns fixed values.
func Values(values ...string) func() []string { return func() []string { return values } }

func register(cmd *cobra.Command, flag string, values func(begun string) []string, then cobra.ShellCompDirective) {
	must(cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		var fit []string
		for _, v := range values(begun) {
			if strings.HasPrefix(v, begun) {
				fit = append(fit, v)
			}
		}
		return fit, then
	}))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
