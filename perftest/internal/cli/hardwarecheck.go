package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
	"github.com/gucx/gucx/perftest/internal/studies/hwcheck"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// skipError is the reason why there is nothing to do.
type skipError struct{ reason string }

func (e *skipError) Error() string { return e.reason }

// errStepsFailed is the result of a check with failed steps.
var errStepsFailed = errors.New("steps failed: see the report")

// newHardwareCheck tests an adapter, and prints a report.
func newHardwareCheck() *cobra.Command {
	var name string
	var cfg hwcheck.Config
	cmd := &cobra.Command{
		Use:   "hardware-check",
		Short: "Test an adapter, and print a report to send back",
		Long: `Test an RDMA adapter through loopback: create each type of object, post each
type of work request, compare the memory, and measure. gucx has never run on a
ConnectX adapter: please send the report back in any case. See
docs/hardware.md. Without -d it uses the first device of the kernel's driver
mlx5; if there is none, it exits with status 77.`,
		Example: `  perftest hardware-check                the first adapter
  perftest hardware-check -d mlx5_1:2    port 2 of another one`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dev, port, err := adapter(name)
			if err != nil {
				return err
			}
			cfg.Port = port
			return checkHardware(cmd.Context(), cmd.OutOrStdout(), dev, cfg)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&name, "device", "d", "", "device, or device:port")
	quantity.Count(f, &cfg.Iterations, "iters", "n", 1000, "operations of each measurement")
	f.DurationVar(&cfg.Timeout, "timeout", 5*time.Second, "timeout for a completion or an event")
	return cmd
}

// adapter returns the device with a name, and the port; the first adapter if there is no name.
func adapter(name string) (*verbs.Device, uint8, error) {
	if name != "" {
		dev, port, err := device.Find(device.Fabrics()[1], name)
		if err != nil {
			return nil, 0, &usageError{err}
		}
		return dev, port, nil
	}
	list, err := device.Adapters(device.Fabrics()[1])
	if err != nil {
		return nil, 0, err
	}
	if len(list) == 0 {
		reason := "no device of the kernel's driver mlx5"
		if _, err := os.Stat("/dev/infiniband"); err != nil {
			reason += ": " + err.Error()
		}
		return nil, 0, &skipError{reason}
	}
	return list[0], 1, nil
}

// checkHardware runs the steps, and prints the report.
func checkHardware(ctx context.Context, out io.Writer, dev *verbs.Device, cfg hwcheck.Config) error {
	if cfg.Iterations < 1 || cfg.Timeout <= 0 {
		return &usageError{fmt.Errorf("%d iterations, timeout %v: want positive numbers", cfg.Iterations, cfg.Timeout)}
	}
	m := machine.Describe()
	fmt.Fprintf(out, "gucx hardware check of %s port %d\n%s, %d cores, %s, %s %s\ngucx %s, commit %s\n\n", dev.Name(), cfg.Port,
		m.CPU, m.Cores, m.Kernel, m.Go, m.Arch, ucp.Version, machine.Commit(ctx))
	report, err := hwcheck.Run(ctx, dev, cfg)
	if err = errors.Join(report.Write(out), err); err != nil {
		return err
	}
	failed := report.Failed()
	fmt.Fprintf(out, "\n%d of %d steps failed. Please send this report to the project, also if none has.\n", failed, len(report.Outcomes))
	if failed > 0 {
		return errStepsFailed
	}
	return nil
}
