package ucp

import "github.com/gucx/gucx/uct"

// Resources lists the transports that the configuration selects, in the order of the
// components.
func (c *Context) Resources() []uct.Resource {
	var selected []uct.Resource
	for i := range c.found {
		if c.found[i].selected {
			selected = append(selected, c.found[i].Resource)
		}
	}
	return selected
}
