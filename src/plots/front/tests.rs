use super::super::scene::Shape;
use super::*;
use crate::rng::Stream;

fn axis(name: &str, title: &str, unit: &str) -> AxisSpec {
    AxisSpec {
        name: name.into(),
        title: format!("{title} ({unit})"),
        unit: unit.into(),
        better: Direction::Maximise,
        bound: None,
    }
}

/// A cloud of candidates of four parallelisms at rising batch limits, shaped like real sweeps: throughput saturates with
/// the batch while speed falls.
fn synthetic(count: u64) -> FrontFigure {
    let names = ["tp1", "tp2", "tp4", "tp8"];
    let mut stream = Stream::new(7, "figure", 0);
    let mut points = Vec::new();
    for index in 0..count {
        let category = stream.below(4) as usize;
        let tp = f64::from(1u32 << category);
        let batch = libm::exp2(stream.uniform() * 8.0);
        let quality = 0.55 + 0.45 * libm::sqrt(stream.uniform());
        let step_ms = (5.0 + 60.0 / tp + 0.12 * batch * (1.0 + 0.6 / tp)) * (0.9 + 0.2 * stream.uniform());
        let x = 1000.0 / step_ms;
        let y = quality * batch * x / (tp * (1.0 + 0.12 * tp));
        points.push(FrontPoint { index, x, y, category, feasible: x >= 20.0 && stream.uniform() < 0.85 });
    }
    let feasible: Vec<usize> = (0..points.len()).filter(|at| points[*at].feasible).collect();
    let dominated = |a: &FrontPoint| feasible.iter().any(|b| points[*b].x > a.x && points[*b].y > a.y);
    let mut members: Vec<usize> = feasible.iter().copied().filter(|at| !dominated(&points[*at])).collect();
    members.sort_unstable_by(|a, b| points[*a].x.total_cmp(&points[*b].x));
    let front: Vec<FrontMember> = members
        .iter()
        .map(|at| {
            let point = &points[*at];
            let replicas = 16 >> point.category;
            FrontMember { point: *at, label: format!("{replicas} × {}, 256 seqs", names[point.category]) }
        })
        .collect();
    let mut x = axis("gen_speed_p95", "Generation speed at the p95 TPOT", "tokens/s/user");
    x.bound = Some(20.0);
    FrontFigure {
        title: "Llama-3.3-70B on 16 H100: throughput against generation speed".into(),
        subtitle: "chat workload, 860 input and 650 output tokens; SLA: TTFT p95 ≤ 1,000 ms, TPOT p95 ≤ 50 ms".into(),
        x,
        y: axis("throughput_per_gpu", "Output throughput per GPU", "tokens/s/GPU"),
        points,
        categories: names.map(String::from).to_vec(),
        knee: Some(front.len() / 2),
        front,
        footnote: "servescape plot results/llama70b-h100".into(),
    }
}

#[test]
fn every_text_lies_inside_the_figure_and_none_overlap() {
    let figure = synthetic(600);
    let scene = Plane::new(&figure).unwrap().scene();
    let mut frames: Vec<(String, Frame)> = Vec::new();
    for shape in &scene.shapes {
        let Shape::Text { text, position: [x, y], anchor, size, bold, upward, .. } = shape else { continue };
        let width = text_width(text, *size, *bold);
        let start = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -width / 2.0,
            Anchor::End => -width,
        };
        let half = size / 2.0;
        let frame = if *upward {
            Frame { left: x - half, right: x + half, top: y - start - width, bottom: y - start }
        } else {
            Frame { left: x + start, right: x + start + width, top: y - half, bottom: y + half }
        };
        let whole = Frame { left: 0.0, top: 0.0, right: FIGURE_SIZE.0, bottom: FIGURE_SIZE.1 };
        assert!(whole.encloses(&frame), "`{text}` leaves the figure: {frame:?}");
        frames.push((text.clone(), frame));
    }
    for (at, (text, frame)) in frames.iter().enumerate() {
        for (other, other_frame) in &frames[at + 1..] {
            assert!(!frame.overlaps(other_frame), "`{text}` overlaps `{other}`");
        }
    }
    let knee = format!("{} (knee)", figure.front[figure.knee.unwrap()].label);
    assert!(frames.iter().any(|(text, _)| *text == knee));
}

#[test]
fn axes_that_get_better_downwards_put_labels_on_their_side() {
    let mut figure = synthetic(600);
    for point in &mut figure.points {
        point.x = 20_000.0 / point.x;
    }
    figure.x.better = Direction::Minimise;
    figure.x.bound = Some(1000.0);
    let plane = Plane::new(&figure).unwrap();
    assert_eq!(plane.panel.outward(&figure.x, &figure.y), [-1.0, -1.0]);
    assert!(
        plane.scene().shapes.iter().any(|shape| matches!(shape, Shape::Text { text, .. } if text == "SLA ≤ 1,000"))
    );
}

#[test]
fn files_that_cannot_be_written_are_diagnostics() {
    let folder = tempfile::tempdir().unwrap();
    let error = draw(&synthetic(5), &folder.path().join("absent")).unwrap_err();
    assert!(error.message.contains("front.csv"), "{}", error.message);
}

#[test]
fn thinning_keeps_a_huge_cloud_small_and_its_outline() {
    let mut figure = synthetic(300);
    let copies = figure.points.clone();
    for _ in 0..20 {
        figure.points.extend_from_slice(&copies);
    }
    let plane = Plane::new(&figure).unwrap();
    assert!(plane.drawn.len() <= copies.len());
}

#[test]
fn the_staircase_joins_what_two_neighbours_both_reach() {
    let mut figure = synthetic(0);
    let point = |x, y| FrontPoint { index: 0, x, y, category: 0, feasible: true };
    figure.points = vec![point(10.0, 30.0), point(20.0, 20.0)];
    figure.front = (0..2).map(|point| FrontMember { point, label: String::new() }).collect();
    let plane = Plane::new(&figure).unwrap();
    let expected = [(10.0, 30.0), (10.0, 20.0), (20.0, 20.0)].map(|(x, y)| plane.panel.position(x, y));
    assert_eq!(plane.staircase(), expected);
}

#[test]
fn the_data_list_the_front_first() {
    let figure = synthetic(40);
    let csv = Plane::new(&figure).unwrap().csv();
    assert_eq!(csv.lines().count(), 1 + Plane::new(&figure).unwrap().drawn.len());
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("index,gen_speed_p95,throughput_per_gpu,category,meets_sla,on_front,label"));
    let first = lines.next().unwrap();
    assert!(first.contains(",true,true,\""), "{first}");
}

#[test]
fn no_feasible_candidate_and_no_candidate_at_all_still_draw() {
    let mut figure = synthetic(50);
    figure.points.iter_mut().for_each(|point| point.feasible = false);
    figure.front.clear();
    figure.knee = None;
    assert!(!Plane::new(&figure).unwrap().scene().shapes.is_empty());
    figure.points.clear();
    assert!(!Plane::new(&figure).unwrap().scene().shapes.is_empty());
    figure.front.push(FrontMember { point: 9, label: "nowhere".into() });
    assert!(Plane::new(&figure).err().unwrap().message.contains("nowhere"));
}
