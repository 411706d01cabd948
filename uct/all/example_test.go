package all_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
)

// All components, configured by variables: what ucp.NewContext takes. gucx.Open does it with those
// of os.Environ.
func Example() {
	var cfg all.Config
	if err := config.FromEnv([]string{"GUCX_TCP_SEG_SIZE=16k"}, cfg.Tables()...); err != nil {
		log.Fatal(err)
	}
	for _, c := range cfg.Components() {
		fmt.Println(c.Name())
	}
	// Output:
	// sm
	// ib
	// self
	// tcp
}
