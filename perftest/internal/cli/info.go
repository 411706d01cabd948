package cli

import (
	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/info"
)

// newInfo makes the command info.
func (p Program) newInfo() *cobra.Command {
	var q info.Query
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Print devices, transports, their limits and the configuration",
		Long: `Print devices, transports, their capabilities and limits, the protocols of an
endpoint, and the configuration. The flags are those of ucx_info. Without
flags: version and devices.`,
		Example: `  perftest info -d -t tcp      devices and limits of one transport
  perftest info -p             which transport and protocol a message takes
  perftest info -f             all variables of the environment, explained`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.config()
			if err != nil {
				return &usageError{err}
			}
			if err := checkFabric(q.Fabric); err != nil {
				return &usageError{err}
			}
			if _, err := device.List(q.Fabric); err != nil {
				return &usageError{err}
			}
			if q.Protocols {
				if _, err := allowed(cfg.UCP, cfg.Components(q.Fabric)); err != nil {
					return &usageError{err}
				}
			}
			if q.Transport != "" {
				if _, err := device.FindTransport(cfg.Components(q.Fabric), q.Transport, ""); err != nil {
					return &usageError{err}
				}
			}
			return info.Write(cmd.Context(), cmd.OutOrStdout(), cfg, q)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&q.Version, "version", "v", false, "version and build")
	f.BoolVarP(&q.System, "system", "s", false, "machine")
	f.BoolVarP(&q.Devices, "devices", "d", false, "devices and transports with capabilities and limits")
	f.BoolVarP(&q.Protocols, "protocols", "p", false, "lanes and protocols of an endpoint to a process of this host, and why")
	f.BoolVarP(&q.Config, "config", "c", false, "current configuration, as environment variables")
	f.BoolVarP(&q.Full, "full", "f", false, "configuration with its documentation")
	f.BoolVar(&q.Resources, "resources", false, "device resources of verbs objects: by object, for 16 threads by category of endpoints, and for connections of two nodes")
	f.StringVarP(&q.Transport, "transport", "t", "", "only this transport")
	f.StringVar(&q.Fabric, "fabric", device.Fabrics()[0], "fabric of the software HCA")
	complete.One(cmd, "transport", func() []string {
		return installed(p.Own, func(t *device.Transport) string { return t.Resource.Transport })
	})
	complete.One(cmd, "fabric", device.Fabrics)
	return cmd
}
