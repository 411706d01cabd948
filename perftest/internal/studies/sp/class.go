package sp

import (
	"fmt"
	"math"
	"strings"
)

// components is the number of unknowns of a point: density, momentum in x, y and z, energy.
const components = 5

// vector is a value for each unknown.
type vector [components]float64

// Class is a size of the problem, with its expected results. The values are those that the NAS
// Parallel Benchmarks publish (RNR-94-007 for A and B, version 3 of the reference for the others).
type Class struct {
	Name  string
	Grid  int     // points in each direction
	Steps int     // time steps
	Dt    float64 // length of a time step

	residual vector // RMS of the residual after Steps
	solution vector // RMS of the error of the solution after Steps
}

// Epsilon is the maximum relative difference to the published values.
const Epsilon = 1e-8

// Classes lists all classes, the smallest first.
func Classes() []Class {
	return []Class{
		{
			Name: "S", Grid: 12, Steps: 100, Dt: 0.015,
			residual: vector{2.7470315451339479e-2, 1.0360746705285417e-2, 1.6235745065095532e-2, 1.5840557224455615e-2, 3.4849040609362460e-2},
			solution: vector{2.7289258557377227e-5, 1.0364446640837285e-5, 1.6154798287166471e-5, 1.5750704994480102e-5, 3.4177666183390531e-5},
		},
		{
			Name: "W", Grid: 36, Steps: 400, Dt: 0.0015,
			residual: vector{0.1893253733584e-2, 0.1717075447775e-3, 0.2778153350936e-3, 0.2887475409984e-3, 0.3143611161242e-2},
			solution: vector{0.7542088599534e-4, 0.6512852253086e-5, 0.1049092285688e-4, 0.1128838671535e-4, 0.1212845639773e-3},
		},
		{
			Name: "A", Grid: 64, Steps: 400, Dt: 0.0015,
			residual: vector{2.4799822399300195, 1.1276337964368832, 1.5028977888770491, 1.4217816211695179, 2.1292113035138280},
			solution: vector{1.0900140297820550e-4, 3.7343951769282091e-5, 5.0092785406541633e-5, 4.7671093939528255e-5, 1.3621613399213001e-4},
		},
		{
			Name: "B", Grid: 102, Steps: 400, Dt: 0.001,
			residual: vector{0.6903293579998e+2, 0.3095134488084e+2, 0.4103336647017e+2, 0.3864769009604e+2, 0.5643482272596e+2},
			solution: vector{0.9810006190188e-2, 0.1022827905670e-2, 0.1720597911692e-2, 0.1694479428231e-2, 0.1847456263981e-1},
		},
		{
			Name: "C", Grid: 162, Steps: 400, Dt: 0.00067,
			residual: vector{0.5881691581829e+3, 0.2454417603569e+3, 0.3293829191851e+3, 0.3081924971891e+3, 0.4597223799176e+3},
			solution: vector{0.2598120500183, 0.2590888922315e-1, 0.5132886416320e-1, 0.4806073419454e-1, 0.5483377491301},
		},
	}
}

// ParseClass returns the class with a name, in upper or lower case.
func ParseClass(name string) (Class, error) {
	for _, c := range Classes() {
		if strings.EqualFold(c.Name, name) {
			return c, nil
		}
	}
	return Class{}, fmt.Errorf("class %q: want S, W, A, B or C", name)
}

// Operations returns the number of floating-point operations of all steps as the benchmark counts
// them: a polynomial in the grid's edge that its authors define for reports, not the operations of
// an implementation.
func (c Class) Operations() float64 {
	n := float64(c.Grid)
	return float64(c.Steps) * (881.174*n*n*n - 4683.91*n*n + 11484.5*n - 19272.4)
}

// Norms are the two results of a run.
type Norms struct {
	Residual [components]float64 // RMS over the points that are not on the boundary
	Solution [components]float64 // RMS of the difference to the exact solution
}

// Verify compares norms with the published values. The error contains the wrong value, and wraps
// ErrVerify.
func (c Class) Verify(n Norms) error {
	for m := range components {
		if err := differs("residual", m, n.Residual[m], c.residual[m]); err != nil {
			return fmt.Errorf("class %s: %w", c.Name, err)
		}
		if err := differs("error of the solution", m, n.Solution[m], c.solution[m]); err != nil {
			return fmt.Errorf("class %s: %w", c.Name, err)
		}
	}
	return nil
}

// differs compares one value. NaN and infinite values differ.
func differs(what string, m int, got, want float64) error {
	if math.Abs(got-want) <= Epsilon*math.Abs(want) {
		return nil
	}
	return fmt.Errorf("%w: %s of component %d is %.13g, want %.13g", ErrVerify, what, m+1, got, want)
}
