package sheet

import "fmt"

// Millions prints a float64 number of things a second in millions.
func Millions(v any) string { return fmt.Sprintf("%.3f", v.(float64)/1e6) }

// Percent prints a float64 share.
func Percent(v any) string { return fmt.Sprintf("%.1f %%", 100*v.(float64)) }

// Short prints a float64 with three digits.
func Short(v any) string { return fmt.Sprintf("%.3g", v.(float64)) }

// KiB prints an int64 number of bytes.
func KiB(v any) string { return fmt.Sprintf("%.1f KiB", float64(v.(int64))/1024) }
