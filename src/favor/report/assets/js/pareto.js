// The front of two metrics, by the rule of `favor pareto`: dominated is who is nowhere better and somewhere worse.

// The members among `rows`, best in the first metric first. Equal rows do not dominate each other.
function paretoFront(rows, xs, ys, xBetter, yBetter) {
  const cost = (values, better, row) => (better === "higher" ? -values[row] : values[row]);
  const points = rows.map((row) => ({ row, x: cost(xs, xBetter, row), y: cost(ys, yBetter, row) }));
  points.sort((a, b) => a.x - b.x || a.y - b.y || a.row - b.row);
  const members = [];
  let least = Infinity;
  let last = null;
  for (const point of points) {
    const equal = last !== null && point.x === last.x && point.y === last.y;
    if (point.y < least || equal) {
      members.push(point.row);
      least = point.y;
      last = point;
    }
  }
  return members;
}
